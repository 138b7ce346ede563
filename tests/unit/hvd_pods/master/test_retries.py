"""Whether another attempt follows a failed one, and when."""

from __future__ import annotations

import pytest

from hvd_pods.common.errors import (
    ConfigurationError,
    HostsTimeoutError,
    LaunchError,
    LostHostError,
    NotANumberError,
    RunError,
)
from hvd_pods.master.retries import Retries

FAILED = LaunchError("exit code 1", 1)
MISTAKE = LaunchError("TypeError", 1, repeats="TypeError")


@pytest.mark.parametrize(
    ("problem", "failures", "lost_masters", "follows"),
    [
        (FAILED, 1, 0, True),
        (FAILED, 2, 0, True),
        (FAILED, 3, 0, False),
        (FAILED, 2, 1, False),
        (ConfigurationError("no mpirun"), 1, 0, False),
        (HostsTimeoutError("nobody came"), 1, 0, False),
        (RunError("cannot start"), 1, 0, True),
    ],
)
def test_attempts_follow_up_to_the_limit_where_they_can_help(
    problem: RunError, failures: int, lost_masters: int, follows: bool
) -> None:
    verdict = Retries(2, lost_masters).judge(problem, 1.0, failures, 0)
    assert (verdict.pause is not None) is follows


def pauses(*attempts: tuple[RunError, float, int]) -> list[float | None]:
    """The pauses after attempts: what failed, after how many seconds, at which step."""
    retries, found = Retries(99), []
    for number, (problem, seconds, step) in enumerate(attempts, 1):
        verdict = retries.judge(problem, seconds, number, step)
        retries = verdict.retries
        found.append(verdict.pause)
    return found


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        # The pause is doubled while nothing trains; training begins the count anew.
        ([(FAILED, 1.0, 0)] * 4, [0.0, 5.0, 10.0, 20.0]),
        ([(FAILED, 1.0, 0)] * 9, [0.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]),
        ([(FAILED, 1.0, 0), (FAILED, 60.0, 0), (FAILED, 1.0, 0)], [0.0, 0.0, 0.0]),
        # An attempt that came further than all before had trained, too.
        ([(FAILED, 1.0, 10), (FAILED, 1.0, 20), (FAILED, 1.0, 20)], [0.0, 0.0, 0.0]),
        ([(FAILED, 1.0, 10), (FAILED, 1.0, 5), (FAILED, 1.0, 5)], [0.0, 0.0, 5.0]),
        # A host that is lost is no failure of the script.
        ([(LostHostError("lost", 1), 1.0, 0)] * 3, [0.0, 0.0, 0.0]),
        # The same mistake again ends the run, unless the script came further.
        ([(MISTAKE, 1.0, 0)] * 2, [0.0, None]),
        ([(MISTAKE, 1.0, 10), (MISTAKE, 1.0, 20)], [0.0, 0.0]),
        ([(MISTAKE, 1.0, 0), (FAILED, 1.0, 0), (MISTAKE, 1.0, 0)], [0.0, 5.0, 10.0]),
        ([(NotANumberError(), 100.0, 10), (NotANumberError(), 100.0, 20)], [0.0, None]),
    ],
)
def test_pauses_follow_from_how_far_attempts_came(
    attempts: list[tuple[RunError, float, int]], expected: list[float | None]
) -> None:
    assert pauses(*attempts) == expected
