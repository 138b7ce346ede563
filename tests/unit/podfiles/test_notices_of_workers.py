"""What the master does with each notice of a worker, and when it reports what belongs together."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.common.notices import ASKED, ENDED, FAILED, RAISED
from hvd_pods.master import launch, stall
from hvd_pods.master.launch import Launcher
from tests.unit.podfiles.master_pod import read_log
from tests.unit.podfiles.runs import make_run

FROM = {"host": "hvd-cpu-0", "rank": 1}


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """A launch whose leavers note what they are told."""
    monkeypatch.setattr(launch, "signal", SimpleNamespace(signal=lambda *_: None, SIGTERM=15))
    made = Launcher()
    made.hosts = lambda: make_run().hosts
    return made


@pytest.fixture
def told(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the leavers are told."""
    calls: list[Any] = []
    leavers = SimpleNamespace(
        ask=lambda *words: calls.append(("ask", *words)),
        end=lambda *words: calls.append(("end", *words)),
    )
    monkeypatch.setattr(launcher, "leavers", leavers)
    return calls


def test_worker_that_leaves_is_logged_once(
    launcher: Launcher, told: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of its ranks says so."""
    stalls = stall.Stalls(make_run(), launcher, lambda _: None)
    for rank in (1, 0):
        stalls.take({"kind": "leaving", "host": "hvd-cpu-0", "rank": rank, "seconds": 25.0})
    stalls.take({"kind": "leaving", "host": "hvd-cpu-1", "rank": 2, "seconds": 9.0})
    assert read_log(capsys) == [
        "hvd-cpu-0 is terminating: its ranks have 25 s to save",
        "hvd-cpu-1 is terminating: its ranks have 9 s to save",
    ]
    assert told == [("ask", "hvd-cpu-0", 1), ("ask", "hvd-cpu-0", 0), ("ask", "hvd-cpu-1", 2)]


def test_rank_that_was_asked_or_has_ended_is_noted(launcher: Launcher, told: list[Any]) -> None:
    stalls = stall.Stalls(make_run(), launcher, lambda _: None)
    stalls.take({"kind": ASKED, **FROM})
    stalls.take({"kind": ENDED, "connection": "its own", **FROM})
    assert told == [("ask", "hvd-cpu-0", 1), ("end", "hvd-cpu-0", 1, "its own")]


@pytest.mark.parametrize(("mode", "ranks"), [("mpirun", [1, 2]), ("elastic", [2])])
def test_only_an_elastic_run_forgets_the_ranks_that_failed_before(
    launcher: Launcher, mode: str, ranks: list[int]
) -> None:
    """It has gone on without them."""
    stalls = stall.Stalls(make_run(mode=mode), launcher, lambda _: None)
    for rank in (1, 2):
        stalls.take({"kind": FAILED, "host": "hvd-cpu-0", "rank": rank, "code": 3})
        stalls.take({"kind": RAISED, "host": "hvd-cpu-0", "rank": rank, "text": "ValueError"})
    assert [notice["rank"] for notice in launcher.failed] == ranks
    assert [notice["rank"] for notice in launcher.raised] == [1, 2]
    assert all(notice["at"] > 0 for notice in (*launcher.failed, *launcher.raised))


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The timers that are started, which the test stands in for."""
    started: list[Any] = []

    def make(seconds: float, function: Any) -> SimpleNamespace:
        return SimpleNamespace(start=lambda: started.append((seconds, function)))

    monkeypatch.setattr(stall, "threading", SimpleNamespace(Lock=threading.Lock, Timer=make))
    return started


def test_one_report_names_all_ranks_of_a_message(launcher: Launcher, timers: list[Any]) -> None:
    announced: list[str] = []
    stalls = stall.Stalls(make_run(), launcher, announced.append)
    for rank in (0, 1):
        notice = {"kind": "stopped", "host": "gone", "rank": rank, "seconds": 9.0, "period": 9.0}
        stalls.take(notice)
    assert timers == [(stall.COLLECT, stalls._report)]
    timers[0][1]()
    stalls.take({**notice, "rank": 2})
    assert timers == [(stall.COLLECT, stalls._report)] * 2
    timers[1][1]()
    what = "on gone is stopped, by SIGSTOP or a debugger, for 9 s"
    assert announced == [f"rank 0 {what}; rank 1 {what}", f"rank 2 {what}"]


def test_lines_of_other_ranks_may_come_between_those_of_a_message(
    launcher: Launcher, timers: list[Any]
) -> None:
    stalls = stall.Stalls(make_run(mode="elastic"), launcher, lambda _: None)
    stalls.read("ranks are waiting for remainder of ranks for more than 30 seconds.")
    for _ in range(stall.STRAY_LINES - 1):
        stalls.read("step 7")
    stalls.read("0: [allreduce.a]")
    assert len(timers) == 1
    assert stalls._new.keys() == {0}
    stalls.read("step 8")
    stalls.read("1: [allreduce.a]")
    assert stalls._new.keys() == {0}, "too long after the message"
