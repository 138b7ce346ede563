"""Staging on a real node: two workers that share it, one set of data."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import Namespace, Values

# Slow enough that the other worker comes while it runs; leaves a line for each time that it ran.
FETCH = "date >>../../fetches; sleep 1; echo content >part-0; sha256sum part-0 >SHA256SUMS"
SHOW = "import sys; sys.stdout.write('SEEN ' + open('/data/set/part-0').read())"


def values(folder: Path, **worker: object) -> Values:
    """Two workers that read what staging has put on their node."""
    return {
        "worker": {"number": 2, **worker},
        "master": {"args": ["python3", "-c", SHOW], "backoffLimit": 0},
        "volumes": [{"name": "data", "hostPath": {"path": str(folder)}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
        "staging": {"path": "/data/set", "command": ["sh", "-c", FETCH]},
        "cleanup": "Never",
    }


def staging_logs(namespace: Namespace) -> str:
    """What the workers' staging containers said."""
    pods = ("hvd-worker-0", "hvd-worker-1")
    return "".join(namespace.kubectl("logs", pod, "--container", "staging") for pod in pods)


def test_a_nodes_data_are_fetched_once(privileged: Namespace, node_folder: Path) -> None:
    privileged.install("hvd", values(node_folder))
    assert privileged.wait_for_end("hvd") == "Complete", privileged.describe("hvd")
    assert privileged.log("hvd").count("SEEN content") == 2
    logs = staging_logs(privileged)
    assert "another pod is filling /data/set: waiting for it" in logs
    assert "checking the publisher's SHA256SUMS" in logs

    # New workers find it there.
    privileged.upgrade("hvd", values(node_folder, podLabels={"changed": "yes"}))
    assert privileged.wait_for_end("hvd") == "Complete", privileged.describe("hvd")
    assert staging_logs(privileged).count("/data/set is filled: 2 files") == 2
    assert len((node_folder / "fetches").read_text().splitlines()) == 1


def test_why_staging_failed_is_in_the_masters_log(privileged: Namespace, node_folder: Path) -> None:
    failing = values(node_folder)
    failing["staging"] = {"path": "/data/set", "command": ["sh", "-c", "exit 9"]}
    failing["launch"] = {"hostsTimeoutSeconds": 5}
    privileged.install("hvd", failing)
    assert privileged.wait_for_end("hvd") == "Failed"
    assert "staging: the command ended with exit code 9" in privileged.log("hvd")
