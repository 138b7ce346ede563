"""A worker ends what older epochs have left: real processes."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_pods.common import fast_start, fence
from tests.fakes.faults import TIMEOUT
from tests.unit.hvd_pods.warm.worker import is_alive, make_worker, warm
from tests.waiting import wait_until

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


# Only processes with this variable are of the worker of this test: others test here, too.
MARK = {"TEST_OF_FENCE": secrets.token_hex()}


is_here = fence._is_here


@pytest.fixture(autouse=True)
def newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(fast_start, "EPOCH", str(tmp_path / "epoch"))
    monkeypatch.setattr(fast_start, "WORKER", str(tmp_path / "worker"))
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


@pytest.fixture
def started() -> Iterator[list[Session]]:
    sessions: list[Session] = []
    yield sessions
    for session in sessions:
        session.process.kill()
        session.process.wait()


def test_an_older_epoch_is_refused(newest: Path) -> None:
    assert fence.admit(None) == "0"
    fence.admit("10")
    with pytest.raises(fence.FenceError, match=r"epoch is 9, but .* with epoch 10"):
        fence.admit("9")
    # The last ones would keep all later masters out.
    for malformed in ("", "-1", "1.5", "²", "9" * 15, "9" * 5000):
        with pytest.raises(fence.FenceError, match="is not a number"):
            fence.admit(malformed)
    assert fence.admit("10") == "10"
    # A command line of the user's own may start another ssh than the chart's.
    assert fence.admit(None) == "10"
    assert newest.read_text() == "10"


def test_what_ranks_of_older_epochs_have_reported_is_served_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "metrics"
    (folder / "made by a script").mkdir(parents=True)
    monkeypatch.setenv("HVD_METRICS_DIR", str(folder))
    fence.admit("10")
    (folder / "0").write_text("horovod_loss NaN\n")
    fence.admit("10")
    assert (folder / "0").exists(), "it is of this epoch"
    fence.admit("11")
    assert not (folder / "0").exists()


@pytest.mark.parametrize("content", ["9" * 15, "9" * 5000, "x"])
def test_an_epoch_that_training_code_has_made_up_keeps_no_master_out(
    newest: Path, started: list[Session], content: str
) -> None:
    newest.write_text(content)
    started.append(Session(*SLEEP, epoch=content))
    assert fence.admit("6") == "6"
    assert started[0].process.wait(TIMEOUT) == -signal.SIGKILL


def test_a_session_of_a_newer_epoch_is_left_to_itself(started: list[Session]) -> None:
    """It waits until the session of this epoch has ended the older ones."""
    started += [Session(*SLEEP, epoch=epoch) for epoch in ("5", "6", "7", "x")]
    older = set(fence.older_processes(6))
    found = [session.process.pid in older for session in started]
    assert found == [True, False, False, True]


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


@pytest.mark.parametrize("left", ["", "4"], ids=["new", "started again"])
def test_program_that_a_hook_of_the_container_has_started_is_no_orphan_of_a_session(
    newest: Path, left: str
) -> None:
    """The first session comes after it; what is there later was left by sessions."""
    newest.write_text(left)
    fence.note_worker(os.getpid())
    with subprocess.Popen(["sleep", "60"]) as of_a_hook:
        fence.admit(left or "5")
        with subprocess.Popen(["sleep", "60"], env={}) as orphan:
            # Training code can write to it, too.
            newest.write_text("")
            fence.admit("6")
            orphan.wait(TIMEOUT)
        assert of_a_hook.poll() is None
        of_a_hook.kill()
    assert orphan.returncode == -signal.SIGKILL


@pytest.mark.parametrize("content", ["", "0", "-1", "999999999", "x", "1" * 5000])
def test_made_up_main_program_ends_nothing(newest: Path, content: str) -> None:
    """The parent of a container's first process is 0: all processes would descend from it."""
    newest.with_name("worker").write_text(content)
    assert list(fence.older_processes(6)) == []


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
