"""A worker ends what older epochs have left: real processes."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_pods.common import fast_start, fence
from tests.unit.hvd_pods.warm.worker import is_alive, make_worker, warm
from tests.waiting import wait_until

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
# Leaves a process in a session of its own, without the epoch in its environment: its parent has it.
HIDDEN = (
    "import os, subprocess, sys; subprocess.Popen(sys.argv[1:], env={}, start_new_session=True);"
    "os.wait()"
)
ORPHAN = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"


# Only processes with this variable are of the worker of this test: others test here, too.
MARK = {"TEST_OF_FENCE": secrets.token_hex()}


is_here = fence._is_here


@pytest.fixture(autouse=True)
def newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(fast_start, "EPOCH", str(tmp_path / "epoch"))
    mark = MARK["TEST_OF_FENCE"].encode()
    monkeypatch.setattr(
        fence, "_is_here", lambda folder: mark in fast_start.read(f"{folder}/environ")
    )
    return tmp_path / "epoch"


class Session:
    """A process that a session of an epoch has started, and what it prints when it is up."""

    def __init__(self, *command: str, epoch: str) -> None:
        environment = {**os.environ, **MARK, fence.EPOCH: epoch}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        assert self.process.stdout
        assert self.process.stdout.readline() == b"up\n"

    def is_over(self) -> bool:
        """Whether every process that has the pipe has ended."""
        assert self.process.stdout
        return self.process.stdout.read() == b""


@pytest.fixture
def started() -> Iterator[list[Session]]:
    sessions: list[Session] = []
    yield sessions
    for session in sessions:
        session.process.kill()
        session.process.wait()


@pytest.mark.parametrize(
    "command",
    [SLEEP, [sys.executable, "-c", HIDDEN, *SLEEP], [sys.executable, "-c", ORPHAN, *SLEEP]],
    ids=["process", "child without the variable", "orphan in a session of its own"],
)
def test_a_newer_epoch_ends_what_older_ones_left(
    started: list[Session], command: list[str], newest: Path
) -> None:
    assert fence.admit("5") == "5"
    started += [Session(*command, epoch="5"), Session(*SLEEP, epoch="6")]
    assert fence.admit("6") == "6"
    assert started[0].is_over()
    assert started[1].process.poll() is None, "a process of the new epoch"
    assert newest.read_text() == "6"
    # A session of the same epoch leaves the processes of the others.
    fence.admit("6")
    assert started[1].process.poll() is None


def test_an_older_epoch_is_refused(newest: Path) -> None:
    fence.admit("10")
    with pytest.raises(fence.FenceError, match=r"epoch is 9, but .* with epoch 10"):
        fence.admit("9")
    for malformed in ("", "-1", "1.5"):
        with pytest.raises(fence.FenceError, match="is not a number"):
            fence.admit(malformed)
    assert fence.admit("10") == "10"
    assert newest.read_text() == "10"


def test_a_session_without_an_epoch_belongs_to_the_present_one() -> None:
    """A command line of the user's own may start another ssh than the chart's."""
    assert fence.admit(None) == "0"
    fence.admit("10")
    assert fence.admit(None) == "10"


@pytest.mark.slow
def test_warm_ranks_are_ended_with_all_that_they_have_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork of the warm process has no variable of its own that shows its epoch."""
    monkeypatch.chdir(tmp_path)
    script = (
        "import framework, os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True, env={})\n"
        "print(os.getpid(), child.pid, os.getppid(), flush=True)\ntime.sleep(60)"
    )
    with make_worker() as worker, warm(worker, **MARK) as process:
        client = worker.start("python3", "-c", script, variables={**MARK, fence.EPOCH: "5"})
        assert client.stdout
        client.stdout.readline()
        rank, child, guard = (int(word) for word in client.stdout.readline().split())
        assert rank != client.pid, "the rank is no fork"
        assert Path(f"/proc/{rank}/comm").read_text() != Path(f"/proc/{guard}/comm").read_text()
        # Otherwise the new session would begin beside a guard that has not ended them yet.
        assert {rank, child, guard} <= set(fence.older_processes(6))
        fence.admit("6")
        assert not any(is_alive(pid) for pid in (rank, child))
        # The last of them may still be leaving the kernel, without its memory.
        wait_until(lambda: not is_alive(guard), 20, "the guard is gone")
        assert process.poll() is None, "the warm process serves the next attempt"
        client.communicate(timeout=60)


def test_processes_that_do_not_end_keep_the_session_out(started: list[Session]) -> None:
    started.append(Session(*SLEEP, epoch="5"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fence, "GONE_WITHIN", 0.0)
        patch.setattr(os, "kill", lambda pid, number: None)
        left = f"cannot end processes.*: .*{started[0].process.pid}"
        with pytest.raises(fence.FenceError, match=left):
            fence.admit("6")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a namespace")
def test_processes_of_other_containers_are_left(started: list[Session]) -> None:
    """With hostPID, a worker sees the processes of its whole node."""
    started.append(Session(*SLEEP, epoch="5"))
    started.append(Session("unshare", "--mount", *SLEEP, epoch="5"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fence, "_is_here", is_here)
        own = {session.process.pid for session in started} & {*fence.older_processes(6)}
    assert own == {started[0].process.pid}
