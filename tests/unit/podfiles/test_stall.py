"""Ranks that keep the others waiting: named, and the end of the attempt after a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from hvd_pods.common.errors import LaunchError
from hvd_pods.master import attempts, launch, progress, remote, stall
from hvd_pods.master.launch import Launcher
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.master_pod import MasterPod, read_log
from tests.unit.podfiles.runs import make_run

# What Horovod 0.28.1 writes; its lines may come with those of others.
MESSAGE = (
    "[2026-11-22 10:00:00.1: W horovod/common/stall_inspector.cc:107] One or more tensors were "
    "submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for "
    "remainder of ranks for more than {seconds} seconds. This may indicate that different ranks "
    "are trying to submit different tensors or that only subset of ranks is submitting tensors, "
    "which will cause deadlock. \nMissing ranks:\n0: [allreduce.b]\nstep 7\n"
    "3!: [allreduce.a, allreduce.c ...]\n"
)
BOTH = (
    "rank 0 on hvd-cpu-0 has not joined allreduce.b for 30 s; "
    "rank 3 on hvd-cpu-1 has not joined allreduce.a, allreduce.c ... for 30 s"
)


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """A launch with ranks on three hosts."""
    monkeypatch.setattr(launch, "signal", SimpleNamespace(signal=lambda *_: None, SIGTERM=15))
    # The test says when a message is complete.
    timer = SimpleNamespace(start=lambda: None)
    patched = SimpleNamespace(Lock=threading.Lock, Timer=lambda *_: timer)
    monkeypatch.setattr(stall, "threading", patched)
    made = Launcher()
    made.hosts = lambda: make_run().hosts
    return made


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `ssh` that writes what it is asked to do."""
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\necho "rank 3 is asleep"\n')
    ssh.chmod(0o755)
    monkeypatch.setattr(remote, "GENERATED", tmp_path)
    (tmp_path / "asked").touch()
    return tmp_path / "asked"


Watch = Callable[..., tuple[stall.Stalls, list[str]]]


@pytest.fixture
def watch(launcher: Launcher, asked: Path) -> Watch:
    def start(timeout: int = 0, **changes: str) -> tuple[stall.Stalls, list[str]]:
        announced: list[str] = []
        run = make_run(stallTimeoutSeconds=timeout, **changes)
        return stall.Stalls(run, launcher, announced.append), announced

    return start


def write(stalls: stall.Stalls, message: str = MESSAGE, seconds: int = 30) -> None:
    for line in message.format(seconds=seconds).splitlines():
        stalls.read(line)
    stalls._report()


def launch_again(launcher: Launcher) -> None:
    launcher.reset()
    launcher.hosts = lambda: make_run().hosts


def test_ranks_that_do_not_join_are_named_once_with_host_and_stack(
    watch: Watch, asked: Path, launcher: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    stalls, announced = watch()
    write(stalls)
    write(stalls)
    assert announced == [BOTH]
    lines = read_log(capsys)
    assert [line for line in lines if "stalled" in line] == [f"stalled: {BOTH}"]
    assert "hvd-cpu-1: rank 3 is asleep" in lines
    first, second = asked.read_text().splitlines()
    assert (first.split()[0], first.split()[-1]) == ("hvd-cpu-0.hvd", "0")
    assert second.endswith("/stacks.py 3")
    assert launcher.problem is None, "0 means any time"


def test_attempt_ends_when_a_rank_does_not_join_for_too_long(
    watch: Watch, launcher: Launcher
) -> None:
    stalls, announced = watch(30)
    write(stalls)
    assert isinstance(launcher.problem, LaunchError)
    assert str(launcher.problem) == f"{BOTH}, longer than launch.stallTimeoutSeconds=30"
    assert announced == [BOTH], "no one has seen which ranks they were"


def test_time_counts_from_the_first_message_of_a_stall_on(
    watch: Watch, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(stall, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stalls, announced = watch(100)

    def at(time: float) -> None:
        now[0] = time
        write(stalls)

    # Joined again before the third message, which is too late for the same stall.
    for moment in (1000.0, 1030.0, 1130.0, 1160.0, 1199.0):
        at(moment)
    assert len(announced) == 2
    assert launcher.problem is None
    at(1201.0)
    assert "has not joined allreduce.b for 101 s" in str(launcher.problem)


def test_stall_of_an_earlier_launch_does_not_count(
    watch: Watch, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next launch begins at once, and its ranks may wait for the same rank on purpose."""
    now = [1000.0]
    monkeypatch.setattr(stall, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stalls, announced = watch(50)
    write(stalls)
    now[0] += 30
    write(stalls)
    assert str(launcher.problem).endswith("longer than launch.stallTimeoutSeconds=50")
    launch_again(launcher)
    now[0] += 40
    write(stalls)
    assert launcher.problem is None
    assert announced == [BOTH, BOTH], "it is another stall"


def test_message_of_a_launch_that_has_ended_does_not_end_the_next_one(
    watch: Watch, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalls, announced = watch(30)
    for line in MESSAGE.format(seconds=30).splitlines():
        stalls.read(line)
    launch_again(launcher)
    stalls._report()
    assert (announced, launcher.problem) == ([], None)
    # The hosts take long to answer, and the attempt ends meanwhile.
    monkeypatch.setattr(stalls, "_show_stacks", lambda _: launch_again(launcher))
    write(stalls)
    assert (announced, launcher.problem) == ([BOTH], None)


def test_stopped_rank_is_named_by_its_worker(watch: Watch, launcher: Launcher, asked: Path) -> None:
    stalls, announced = watch(40)
    notice = {"kind": "stopped", "host": "hvd-cpu-0", "rank": 1, "period": 20.0}
    stalls.take({**notice, "seconds": 20.0})
    stalls._report()
    named = "rank 1 on hvd-cpu-0 is stopped, by SIGSTOP or a debugger, for"
    assert announced == [f"{named} 20 s"]
    assert launcher.problem is None
    # Sooner than after 20 seconds: notices take more or less time on their way.
    stalls.take({**notice, "seconds": 40.0})
    stalls._report()
    assert announced == [f"{named} 20 s"], "the same stall was named again"
    assert str(launcher.problem).startswith(f"{named} 40 s, longer than launch.stallTimeout")


def test_worker_that_leaves_is_remembered_for_this_launch(watch: Watch, launcher: Launcher) -> None:
    stalls, _ = watch()
    stalls.take({"kind": "leaving", "host": "hvd-cpu-0", "rank": 1, "seconds": 60.0})
    assert [host.name for host in launcher.hosts() if launcher.may_save(host)] == ["hvd-cpu-0"]
    stalls.take({"kind": "leaving", "host": "hvd-cpu-0", "rank": 1, "seconds": 0.0})
    assert not any(launcher.may_save(host) for host in launcher.hosts())
    stalls.take({"kind": "of a later version", "host": "hvd-cpu-0"})
    assert list(launcher.leaving) == ["hvd-cpu-0"]
    launcher.reset()
    assert not launcher.leaving


def test_ranks_of_an_elastic_run_have_no_known_host(watch: Watch, asked: Path) -> None:
    stalls, announced = watch(mode="elastic")
    write(stalls)
    assert announced[0].startswith("rank 0 has not joined allreduce.b for 30 s; rank 3 has")
    assert asked.read_text() == ""


@pytest.mark.parametrize(
    "message",
    ["0: [allreduce.b]\n", MESSAGE.replace("Missing", "x\n" * stall.STRAY_LINES + "Missing"),
     MESSAGE.replace("0: [", "at 0: [").replace("3!: [", "3?: [")],
    ids=["no message", "too late", "other text"],
)  # fmt: skip
def test_other_output_names_nobody(watch: Watch, message: str) -> None:
    stalls, announced = watch()
    write(stalls, message)
    assert announced == []


def test_many_ranks_make_a_short_message(watch: Watch) -> None:
    stalls, announced = watch()
    ranks = "".join(f"{rank}: [{'t' * 500}]\n" for rank in range(100))
    write(stalls, MESSAGE.partition("0: ")[0] + ranks)
    assert announced[0].endswith("; and 92 more")
    assert len(announced[0]) < 2048
    stalls, announced = watch()
    write(stalls, MESSAGE.partition("0: ")[0] + "".join(f"{rank}: [t]\n" for rank in range(8)))
    assert "more" not in announced[0]


@pytest.mark.slow
def test_attempt_that_stalls_is_followed_by_another(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stall, "COLLECT", 0.3)
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 0.05)
    message = pod.generated.parent / "message"
    message.write_text(MESSAGE.format(seconds=9))
    pod.install(f'[ "$HVD_ATTEMPT" -ge 2 ] || {{ cat {message} >&2; exec sleep 60; }}')
    assert pod.run(stallTimeoutSeconds=9) == 0
    (failed,) = pod.failures()
    assert failed.startswith("rank 0 on hvd-worker-0 has not joined allreduce.b for 9 s; rank 3")
    assert failed.endswith(", longer than launch.stallTimeoutSeconds=9")
    assert "Stalled" in pod.stages()
    assert "; 2 of 2 retries are left" in capsys.readouterr().out


def test_what_a_rank_raised_is_kept_for_the_launch(launcher: Launcher, watch: Watch) -> None:
    stalls, announced = watch()
    stalls.take({"kind": "raised", "host": "hvd-cpu-1", "rank": 3, "text": "KeyError: 'x'"})
    stalls.take({"kind": "failed", "host": "hvd-cpu-1", "rank": 3, "status": -9})
    (failed,) = launcher.failed
    assert (failed["rank"], failed["status"]) == (3, -9)
    assert time.monotonic() - failed["at"] < TIMEOUT
    (kept,) = launcher.raised
    assert (kept["rank"], kept["text"]) == (3, "KeyError: 'x'")
    assert time.monotonic() - kept["at"] < TIMEOUT
    assert announced == []
    launcher.reset()
    assert launcher.raised == launcher.failed == []


@pytest.mark.parametrize(("mode", "kept"), [("mpirun", [0, 3]), ("elastic", [3])])
def test_an_elastic_run_forgets_a_failure_that_it_has_survived(
    launcher: Launcher, watch: Watch, mode: str, kept: list[int]
) -> None:
    stalls, _ = watch(mode=mode)
    for rank in (0, 3):
        stalls.take({"kind": "failed", "host": "hvd-cpu-1", "rank": rank, "status": -9})
    assert [notice["rank"] for notice in launcher.failed] == kept


@pytest.mark.slow
def test_attempt_that_stalls_has_not_finished_whatever_its_launcher_ends_with(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall, "COLLECT", 0.01)
    message = pod.generated.parent / "message"
    message.write_text(MESSAGE.format(seconds=9))
    pod.put_job(spec={"backoffLimit": 0})
    pod.install(f"trap 'exit 0' TERM; cat {message} >&2; sleep 60 & wait")
    assert pod.run(stallTimeoutSeconds=9) == 1
    assert pod.recorded()[0] == "Failed"


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "code"), [(True, 1), (False, 0)])
def test_training_whose_last_loss_is_nan_has_not_finished(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch, wanted: bool, code: int
) -> None:
    """The worker tells the last step when the launcher has ended."""

    close = progress.Progress.close

    def tell_and_close(told: progress.Progress, *, tells_last: bool) -> None:
        told.take("horovod_step 3\thorovod_loss nan", 0.0)
        close(told, tells_last=tells_last)

    monkeypatch.setattr(progress.Progress, "close", tell_and_close)
    pod.put_job(spec={"backoffLimit": 0})
    pod.install("exit 0")
    assert pod.run(failOnNaN=wanted) == code


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["nan", "0.5"])
def test_loss_that_is_nan_ends_the_run_at_the_second_attempt(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    def follow(told: progress.Progress, hosts: object) -> None:
        told.take(f"horovod_step 3\thorovod_loss {loss}", 0.0)

    monkeypatch.setattr(progress.Progress, "follow", follow)
    pod.put_job(spec={"backoffLimit": 9})
    # Scripts that save when they are asked to end may end with 0.
    pod.install('[ "$LOSS" = 0.5 ] && exit; trap "exit 0" TERM; sleep 60 & wait')
    monkeypatch.setenv("LOSS", loss)
    if loss == "0.5":
        assert pod.run(failOnNaN=True) == 0
        return
    assert pod.run(failOnNaN=True) == 1
    assert pod.stages().count("Training") == 2
    assert pod.recorded() == ("Failed", "the loss is NaN (launch.failOnNaN)")
