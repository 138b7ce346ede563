"""A worker's main program and the messages of its sshd, for which a shell stands in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_pods.common import threads
from hvd_pods.rank import warm_client
from hvd_pods.worker import main
from tests.unit.hvd_pods.copies import FILES

SERVE = (
    f"import sys; sys.path.insert(0, {str(FILES)!r}); from hvd_pods.worker import main;"
    "main.DRAIN_WITHIN = float(sys.argv[2]);"
    "sys.exit(main.serve(['sh', '-c', sys.argv[1]], main.Signals()))"
)


def serve(script: str, drain_within: float) -> subprocess.CompletedProcess[str]:
    """Run a worker with a script in place of its sshd."""
    return subprocess.run(
        [sys.executable, "-c", SERVE, script, str(drain_within)],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_all_messages_of_an_sshd_that_ends_are_logged_but_those_of_clients_that_left() -> None:
    left = "kex_exchange_identification: Connection closed by remote host"
    # More than a pipe holds, so that the last ones are still on their way when sshd has ended.
    script = f"seq 30000 >&2; echo '{left}' >&2; echo 'cannot bind' >&2; exit 3"
    done = serve(script, main.DRAIN_WITHIN)
    assert done.returncode == 3, done.stderr[-500:]
    assert done.stderr.splitlines() == [*map(str, range(1, 30001)), "cannot bind"]
    assert "sshd has ended with exit code 3" in done.stdout


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the warm process' socket, whose path must be short."""
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        for constant in ("SOCKET", "DESCRIPTION"):
            file = Path(name, Path(getattr(warm_client, constant)).name)
            monkeypatch.setattr(warm_client, constant, str(file))
        for constant in ("CGROUPS", "DEVICES"):
            monkeypatch.setattr(threads, constant, name)
        monkeypatch.setattr(threads, "count_cores", len)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3} if not pid else {0})
        monkeypatch.setattr(main, "PROGRAMS", Path(name))
        yield Path(name)


# In place of the warm process: what it is started with, and whether ranks can connect.
SHOWS = """
import json, os, socket, sys
listener = socket.socket(fileno=int(sys.argv[1]))
shown = {
    "words": sys.argv[2:-1], "room": len(sys.argv[-1]), "environment": dict(os.environ),
    "leads a session": os.getsid(0) == os.getpid(), "input": sys.stdin.read(),
    "listens": listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN),
}
print(json.dumps(shown), file=open(os.environ["SHOWN"], "w"))
"""


@pytest.mark.slow
def test_warm_process_imports_with_the_threads_that_its_ranks_will_have(
    generated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def note_start(*words: object, **options: object) -> None:
        started.append(start(*words, **options))  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", note_start)
    (generated / "warm").mkdir()
    (generated / "warm/server.py").write_text(SHOWS)
    # Of the container's earlier start.
    for left in (warm_client.SOCKET, warm_client.DESCRIPTION):
        Path(left).write_text("left")
    environment = {"HVD_PRELOAD": "one, two", "HVD_SLOTS": "2", "SHOWN": str(generated / "shown")}
    mask = os.umask(0o022)
    os.umask(mask)
    main.start_warm_process(sys.executable, environment)
    now = os.umask(mask)
    assert now == mask
    assert started[0].wait(60) == 0
    shown = json.loads((generated / "shown").read_text())
    described = json.loads(Path(warm_client.DESCRIPTION).read_text())
    given, own = described.pop("environment"), shown.pop("environment")
    assert shown == {
        "words": ["one", "two"], "room": 2000, "leads a session": True, "input": "", "listens": 1,
    }  # fmt: skip
    assert described == {"python": sys.executable, "modules": ["one", "two"]}
    # Python itself may set LC_CTYPE.
    assert given.items() <= own.items()
    cpus = {0, 1, 2, 3}
    assert given == {**environment, **threads.choose_threads(environment, 2, cpus, cpus)}
    assert own["OMP_NUM_THREADS"] == "2"
    for file in (warm_client.SOCKET, warm_client.DESCRIPTION):
        assert Path(file).stat().st_mode & 0o777 == 0o600, "it may have secrets"
