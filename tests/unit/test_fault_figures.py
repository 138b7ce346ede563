"""What the benchmark of faults makes of the steps of a training."""

from __future__ import annotations

import pytest

from tests.bench.fault_figures import NAMED_BY, Outcome, named, pause, progress
from tests.faults.training import Step


def attempt(start: float, first: int, *times: float) -> list[Step]:
    """The steps of one attempt, from number `first` on."""
    return [Step(at, first + index, start) for index, at in enumerate(times)]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(attempt(0, 1, 8, 9, 11, 12), (1, 0), id="goes on"),
        pytest.param(attempt(0, 1, 8, 9, 21, 22), (11, 0), id="stands still"),
        pytest.param(attempt(0, 1, 8, 9) + attempt(12, 2, 14, 15), (4, 1), id="lost"),
        # The ranks go on for a while, and only the time without a step counts.
        pytest.param(attempt(0, 1, 9, 11, 19) + attempt(20, 4, 22, 23), (8, 0), id="later"),
        pytest.param(attempt(0, 1, 9, 11) + attempt(20, 1, 22, 23), (11, 2), id="twice"),
    ],
)
def test_pause_is_the_longest_after_a_fault(steps: list[Step], expected: tuple[float, int]) -> None:
    assert pause(steps, 10) == Outcome(*expected)


def test_effective_time_leaves_out_pauses_and_steps_made_again() -> None:
    first = attempt(0, 1, 0.5, 1, 1.5, 2, 4, 4.5)
    measured = progress(first + attempt(5, 5, 6, 6.5, 7, 7.5, 10.5), began=0, seconds=10)
    # Steps 2 to 4, 6, 7 and 8, of half a second each; 5 came after a pause, and 9 too late.
    assert (measured["effective"], measured["again"]) == (0.3, 2)
    assert measured["curve"] == [0, 1, 3, 3, 4, 5, 5, 6, 7, 7, 7]


@pytest.mark.parametrize(
    ("fault", "told", "is_named"),
    [
        (
            "rank killed",
            "process rank 1 with PID 0 on node a-worker-1 exited on signal 9 (Killed).",
            True,
        ),
        ("rank killed", "process rank 0 with PID 0 exited on signal 9 (Killed).", False),
        ("worker deleted", "lost communication\n  Remote daemon: on node a-worker-1", True),
        ("worker deleted", "Job has reached the specified backoff limit", False),
        ("network cut", "Pod a-worker-1 is running", False),
    ],
)
def test_cause_is_named_by_who_and_what(fault: str, told: str, is_named: bool) -> None:
    assert bool(named(told, (r"\brank 1\b", "a-worker-1"), NAMED_BY[fault])) == is_named
