"""How often results are stored, and how long that may take: with a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.common.errors import InterruptedRunError
from hvd_pods.master import results
from hvd_pods.master.events import EventRecorder
from tests.unit.podfiles.runs import make_run


class Clock:
    """Stands for the module `time`, and lets time pass where the master waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pauses: list[float] = []
        monkeypatch.setattr(results, "time", SimpleNamespace(monotonic=lambda: sum(self.pauses)))
        monkeypatch.setattr(results, "wait", self.wait)

    def wait(self, seconds: float, is_stopped: Callable[[], bool]) -> bool:
        self.pauses.append(seconds)
        return not is_stopped()


@pytest.mark.parametrize(
    ("until", "fails", "pauses"),
    [
        (1000.0, 9, [5.0, 10.0, 20.0]),
        (1000.0, 2, [5.0, 10.0]),
        (1000.0, 0, []),
        # No time is left for another one.
        (15.0, 9, [5.0, 10.0]),
        (14.9, 9, [5.0]),
        (4.9, 9, []),
    ],
)
def test_command_that_fails_is_run_up_to_four_times_with_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, until: float, fails: int, pauses: list[float]
) -> None:
    clock, tried = Clock(monkeypatch), iter(range(99))
    monkeypatch.setattr(results, "_try", lambda *_: "x" if next(tried) < fails else "")
    assert results._store(until, lambda: False) == ("" if len(pauses) >= fails else "x")
    assert clock.pauses == pauses
    assert next(tried) == len(pauses) + 1


def test_master_that_is_asked_to_end_does_not_wait_for_another_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, stopped = Clock(monkeypatch), iter([False, True])
    monkeypatch.setattr(results, "_try", lambda *_: "x")
    assert results._store(1000.0, lambda: next(stopped)) == "x"
    assert clock.pauses == [5.0]


@pytest.mark.parametrize(("until", "ready_until"), [(1000.0, 120.0), (60.0, 60.0)])
def test_container_has_two_minutes_to_start_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, until: float, ready_until: float
) -> None:
    Clock(monkeypatch)
    waited: list[float] = []
    monkeypatch.setattr(results, "EXCHANGE", tmp_path)

    def wait(_: object, end: float, __: object) -> bool:
        waited.append(end)
        return len(waited) < 2

    monkeypatch.setattr(results, "_wait", wait)
    assert results._try(until, lambda: False) == results.TOO_LONG
    assert waited == [ready_until, until]


@pytest.mark.parametrize(
    ("holder", "problem"),
    [("hvd-master-2", None), ("", InterruptedRunError("asked to end"))],
    ids=["another master has the record", "this master was asked to end"],
)
def test_run_that_another_master_goes_on_with_has_no_results_yet(
    monkeypatch: pytest.MonkeyPatch, holder: str, problem: InterruptedRunError | None
) -> None:
    monkeypatch.setattr(results, "_store", lambda *_: pytest.fail("the command has run"))
    run = make_run(results={"timeoutSeconds": 60, "onFailure": True})
    kept: Any = SimpleNamespace(lost=holder, results="", write_results=lambda how: None)
    how = results.store_results(run, None, EventRecorder(None), kept, lambda: False, problem)
    assert how is problem, "the master ends as it would have without results"
