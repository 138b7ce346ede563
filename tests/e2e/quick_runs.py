"""Runs without a framework, which take seconds, and what their ranks show."""

from __future__ import annotations

import json

from tests.support.namespace import Namespace, Values

# What each rank prints: where it is and what it sees. No framework, so these tests take seconds.
SHOW = """
import json, os, socket, sys
sys.stdout.write("SEEN " + json.dumps({
    "rank": int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("HOROVOD_RANK", -1))),
    "host": socket.gethostname(), "uid": os.getuid(), "mark": os.environ.get("MARK")}) + "\\n")
"""
AWKWARD = "a b 'single' \"double\" $HOME\nsecond line\\"


def quick_values(**changes: object) -> Values:
    """Two workers of two slots that show themselves."""
    base: Values = {
        "worker": {"number": 2, "slots": 2, "env": [{"name": "MARK", "value": AWKWARD}]},
        "master": {"args": ["python3", "-c", SHOW]},
        "launch": {"workersTimeoutSeconds": 120},
    }
    for key, change in changes.items():
        base[key] = {**base.get(key, {}), **change} if isinstance(change, dict) else change
    return base


def seen(log: str) -> list[dict[str, object]]:
    """What the ranks printed, in the order of ranks."""
    # The log also holds the command line, and with it the program above.
    texts = [line.partition("SEEN ")[2] for line in log.splitlines() if "SEEN {" in line]
    entries = [json.loads(text) for text in texts]
    return sorted(entries, key=lambda entry: entry["rank"])


def keys_of(namespace: Namespace, release: str, generation: int = 1) -> list[str]:
    """The keys, certificates and authorities of a release's master and workers."""
    secrets = namespace.keys(release, generation).values()
    return [content for data in secrets for content in data.values()]


def assert_trained(namespace: Namespace, release: str, uid: int = 1000) -> None:
    """Every rank ran once, where it should and with its worker's environment."""
    namespace.assert_completes(release)
    ranks = seen(namespace.log(release))
    hosts = [f"{release}-worker-{worker}" for worker in (0, 0, 1, 1)]
    assert [entry["rank"] for entry in ranks] == [0, 1, 2, 3]
    assert [entry["host"] for entry in ranks] == hosts
    assert {entry["mark"] for entry in ranks} == {AWKWARD}
    assert {entry["uid"] for entry in ranks} == {uid}
