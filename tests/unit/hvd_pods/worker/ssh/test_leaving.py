"""Notice to leave: a worker's own process tree with a real sshd, asked to end as a pod is."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests.unit.hvd_pods.notices import Master
from tests.unit.hvd_pods.worker.ssh.pods import WORKER, SshPods, read_banner, start_ssh_pods
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

EPOCH = "7"
RANK_4 = {"host": os.uname().nodename, "rank": 4}
LEAVING = {**RANK_4, "kind": "leaving", "seconds": 77.0}
# Waits for a signal, says that it saves, and does so when the test lets it.
SCRIPT = """
import os, signal, sys
def save(number, frame):
    os.write(1, b"saving\\n")
    open("{folder}/go-{rank}").read()
    with open("{folder}/checkpoint-{rank}", "a") as file:
        file.write("x")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    signal.pause()
"""
IDLE = "import time; print('ready', flush=True); time.sleep(600)"
RANK = (
    "env HVD_SLOTS=1 OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=1"
    " OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1"
    " python3 -I {files}/hvd_pods/rank/start.py 1 python3 -u {script}"
)


@pytest.fixture
def pods(sshd: None) -> Iterator[SshPods]:
    """A worker that may end, and its master."""
    with start_ssh_pods(4321) as started:
        yield started


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The notices that a master takes, which lets ranks end when all that it knows have ended."""
    master = Master(monkeypatch)
    taken: list[dict[str, Any]] = []
    waiting: list[int] = []

    def answer(notice: dict[str, Any], connection: int) -> None:
        taken.append(notice)
        waiting.append(connection)
        known = {item["rank"] for item in taken if item["kind"] in ("leaving", "asked")}
        if known == {item["rank"] for item in taken if item["kind"] == "ended"}:
            master.server.release(waiting)

    master.on_wait = answer
    return taken


@contextmanager
def running_rank(
    pods: SshPods, rank: int = 4, content: str = SCRIPT
) -> Iterator[subprocess.Popen[bytes]]:
    """A rank that a launcher has started over SSH, and that handles SIGTERM."""
    folder = pods.worker.generated
    os.mkfifo(folder / f"go-{rank}")
    (folder / f"go-{rank}").chmod(0o666)
    script = folder / f"train-{rank}.py"
    script.write_text(content.format(folder=folder, rank=rank))
    line = RANK.format(files=pods.worker.files, script=script, rank=rank)
    environment = {name: os.environ[name] for name in ("PATH", "HVD_EPOCH", "HVD_NOTICES")}
    command = pods.master.ssh_command(WORKER, line)
    with pods.master.start(*command, env=environment, stdout=PIPE) as client:
        assert client.stdout is not None
        wait_for(client, "ready")
        try:
            yield client
        finally:
            client.kill()


def wait_for(client: subprocess.Popen[bytes], text: str) -> None:
    """Read a rank's output up to a line."""
    assert client.stdout is not None
    for line in client.stdout:
        if line == f"{text}\n".encode():
            return
    raise AssertionError(f"the rank has ended before {text!r}")


def test_all_ranks_of_a_worker_that_is_asked_to_end_save_before_it_does(
    pods: SshPods, notices: list[dict[str, Any]]
) -> None:
    """Also those that save for longer than the first, whose launcher would end the others."""
    folder = pods.worker.generated
    ended = {**RANK_4, "kind": "ended"}
    # The master follows the progress until its launch ends, over a login of its own.
    follow = f"python3 -I {pods.worker.files}/hvd_pods/worker/report_progress.py 1"
    session = pods.master.ssh_command(WORKER, f"HVD_METRICS_DIR=/ {follow}")
    login = pods.master.start("timeout", "120", *session, stdin=PIPE)
    with login, running_rank(pods, 4) as first, running_rank(pods, 5) as second:
        pods.worker.process.terminate()
        wait_for(first, "saving")
        wait_for(second, "saving")
        assert notices == [LEAVING, {**LEAVING, "rank": 5}], "the master does not know why"
        assert read_banner(pods.port) == "", "the next attempt could begin here"
        pods.worker.process.terminate()
        (folder / "go-4").write_text("")
        wait_until(lambda: ended in notices, 60, "the master knows that one rank has ended")
        assert first.poll() is None, "its launcher would end the other rank now"
        assert not (folder / "checkpoint-5").exists()
        assert pods.worker.process.poll() is None
        (folder / "go-5").write_text("")
        assert first.wait(60) == second.wait(60) == 143, "the launcher does not learn how"
        assert pods.worker.process.wait(9) == 0
        login.terminate()
    assert [(folder / f"checkpoint-{rank}").read_text() for rank in (4, 5)] == ["x", "x"]
    assert notices[2:] == [ended, {**ended, "rank": 5}]
    assert "Traceback" not in pods.worker.log


def test_master_that_is_asked_to_end_asks_each_rank_once(
    pods: SshPods, notices: list[dict[str, Any]]
) -> None:
    ask = f"python3 -I {pods.worker.files}/hvd_pods/worker/draining.py"
    with running_rank(pods) as client:
        for _ in range(2):
            done = pods.master.ssh(WORKER, ask, HVD_EPOCH=EPOCH)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")
            assert notices == [{**RANK_4, "kind": "asked"}]
        wait_for(client, "saving")
        (pods.worker.generated / "go-4").write_text("")
        assert client.wait(60) == 143
        assert client.stdout is not None
        assert client.stdout.read() == b"", "it was asked again while it saved"
    assert (pods.worker.generated / "checkpoint-4").read_text() == "x"
    assert notices == [{**RANK_4, "kind": "asked"}, {**RANK_4, "kind": "ended"}]
    assert pods.master.ssh(WORKER, ask, HVD_EPOCH=EPOCH).stdout == b"0\n"


@pytest.mark.parametrize(
    ("content", "kept", "number"),
    [
        pytest.param(IDLE, "run-1", b"1 7 2\n", id="state kept"),
        pytest.param(IDLE, "run-2", b"0 7 2\n", id="another run's state"),
        pytest.param(SCRIPT, "run-1", b"0 7 2\n", id="saves by itself"),
    ],
)
def test_ranks_may_stay_if_their_state_is_kept_and_they_would_not_save(
    pods: SshPods, notices: object, content: str, kept: str, number: bytes
) -> None:
    folder = pods.worker.generated / "keep"
    look = f"HVD_KEEP={folder} python3 -I {pods.worker.files}/hvd_pods/worker/draining.py look"
    (folder / kept).mkdir(parents=True)
    (folder / kept / "main-shared.a").touch()
    (pods.worker.generated / "finished").write_text("7 2")
    with running_rank(pods, content=content):
        done = pods.master.ssh(WORKER, look, HVD_EPOCH=EPOCH, HVD_RUN_ID="run-1")
        assert (done.stdout, done.stderr) == (number, b"")


def test_worker_ends_with_its_sshd(pods: SshPods) -> None:
    pid = pods.worker.process.pid
    (sshd,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(int(sshd), signal.SIGKILL)
    assert pods.worker.process.wait(60) == 128 + signal.SIGKILL
    assert "sshd has ended with exit code 137" in pods.worker.log
