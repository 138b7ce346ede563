"""Whether another attempt follows a failed one, and when."""

from __future__ import annotations

from typing import Any

import pytest

from hvd_pods.rules.effects import ScaleDown, StartLauncher
from hvd_pods.rules.job_state import REPLACED, UNREADABLE
from hvd_pods.rules.retries import MAX_UNCOUNTED_ATTEMPTS, Retries, Verdict
from hvd_pods.shared.errors import (
    LaunchError,
    LostWorkerError,
    NotANumberError,
    ResizedError,
    RunError,
    WorkerTerminatedError,
)
from tests.support.world import BEING_DELETED, JOB, World, one_group

FAILED = LaunchError("exit code 1", 1)
MISTAKE = LaunchError("TypeError", 1, repeats="TypeError")
LACKED = LaunchError("No module", 1, repeats="No module", is_permanent=True)


def judge(*attempts: tuple[RunError, float, int]) -> list[Verdict]:
    """The verdicts on attempts: what failed, after how many seconds, at which step."""
    verdict = Verdict(Retries(999), failures=0, delay_seconds=None)
    found = []
    for problem, seconds, step in attempts:
        verdict = verdict.retries.judge(problem, seconds, verdict.failures, step)
        found.append(verdict)
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
        # A worker that is lost is no failure of the script.
        ([(LostWorkerError("lost", 1), 1.0, 0)] * 3, [0.0, 0.0, 0.0]),
        # The same mistake again ends the run, unless the script came further.
        ([(MISTAKE, 1.0, 0)] * 2, [0.0, None]),
        ([(MISTAKE, 1.0, 10), (MISTAKE, 1.0, 20)], [0.0, 0.0]),
        ([(MISTAKE, 1.0, 0), (FAILED, 1.0, 0), (MISTAKE, 1.0, 0)], [0.0, 5.0, 10.0]),
        # What no attempt can avoid ends it at once, unless this one had trained.
        ([(LACKED, 1.0, 0)], [None]),
        ([(LACKED, 90.0, 0), (LACKED, 1.0, 0)], [0.0, None]),
        ([(NotANumberError(), 100.0, 10), (NotANumberError(), 100.0, 20)], [0.0, None]),
    ],
)
def test_pauses_follow_from_how_far_attempts_came(
    attempts: list[tuple[RunError, float, int]], expected: list[float | None]
) -> None:
    assert [verdict.delay_seconds for verdict in judge(*attempts)] == expected


def test_pause_has_a_maximum_however_many_attempts_fail() -> None:
    """Without access to the Job, there is no limit of the attempts."""
    assert Retries(early_failures=5000).judge(FAILED, 1.0, 5000, 0).delay_seconds == 300.0


@pytest.mark.parametrize(
    ("attempts", "failures"),
    [
        ([(1.0, 0)] * MAX_UNCOUNTED_ATTEMPTS, 0),
        ([(1.0, 0)] * (MAX_UNCOUNTED_ATTEMPTS + 2), 2),
        # An attempt that has run for a while came further, whatever steps it has reported: a script
        # may count them from its start, or save so seldom that it repeats some.
        ([(90.0, 0)] * 99, 0),
        ([(36000.0, 50000)] + [(7200.0, 10000)] * 99, 0),
        ([(36000.0, 50000)] + [(240.0, 49800)] * 99, 0),
        ([(1.0, step) for step in range(1, 99)], 0),
    ],
)
def test_workers_that_leave_are_no_failures_as_long_as_attempts_come_further(
    attempts: list[tuple[float, int]], failures: int
) -> None:
    left = WorkerTerminatedError("w-1 left", 143)
    assert judge(*[(left, *attempt) for attempt in attempts])[-1].failures == failures


@pytest.mark.parametrize(
    ("problem", "is_elastic", "failures"),
    [
        (ResizedError("w-1 came", 1), True, 0),
        (LostWorkerError("w-1 is lost", 1), True, 0),
        (LostWorkerError("w-1 is lost", 1), False, 1),
        (FAILED, True, 1),
    ],
)
def test_change_of_the_number_of_workers_is_no_failure(
    problem: RunError, is_elastic: bool, failures: int
) -> None:
    verdict = Retries(9).judge(problem, 1.0, 0, 0, is_elastic=is_elastic)
    assert (verdict.failures, verdict.delay_seconds) == (failures, 0.0)


@pytest.mark.parametrize(
    ("job", "follows"),
    [
        pytest.param(JOB, True, id="it is there"),
        pytest.param(UNREADABLE, True, id="it cannot be read"),
        pytest.param(BEING_DELETED, False, id="it was deleted"),
        pytest.param(REPLACED, False, id="another one has replaced it"),
    ],
)
def test_another_attempt_follows_unless_the_job_is_known_to_be_gone(
    job: Any, follows: bool
) -> None:
    """Its RoleBinding may be gone, or an authorizer fail."""
    world = World(one_group(cleanup="Always"))
    world.train()
    world.answer_all()
    world.job = job
    world.effects.clear()
    world.end_launcher(1)
    world.settle(until=StartLauncher)
    assert bool(world.of(StartLauncher)) is follows
    assert not (follows and world.of(ScaleDown))
