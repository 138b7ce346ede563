"""Whether another attempt follows a failed one, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.common.errors import (
    ConfigurationError,
    HostsTimeoutError,
    LaunchError,
    NotANumberError,
)
from hvd_pods.master import attempts
from hvd_pods.master.attempts import Retries
from hvd_pods.master.ending import UNREADABLE

FAILURE = LaunchError("exit code 1", 1)


def job(limit: int, failed: int = 0) -> Any:
    return {"metadata": {}, "spec": {"backoffLimit": limit}, "status": {"failed": failed}}


def test_a_script_that_fails_at_once_gets_growing_pauses() -> None:
    retries = Retries(20)
    pauses = [retries.pause(FAILURE, 2.0, number, None) for number in range(1, 10)]
    assert pauses == [0, 5, 10, 20, 40, 80, 160, 300, 300]


def test_a_script_that_had_trained_gets_none() -> None:
    retries = Retries(20)
    seconds = [2.0, 2.0, 60.0, 3600.0, 2.0, 2.0]
    pauses = [retries.pause(FAILURE, took, number, None) for number, took in enumerate(seconds, 1)]
    assert pauses == [0, 5, 0, 0, 0, 5]


def test_a_script_that_came_further_had_trained() -> None:
    retries, wrong = Retries(20), LaunchError("rank 1: TypeError", 1, "TypeError")
    pauses = [
        retries.pause(FAILURE, 2.0, number, None, step)
        for number, step in enumerate([5, 9, 9, 9, 20], 1)
    ]
    assert pauses == [0, 0, 0, 5, 0]
    assert [retries.pause(wrong, 2.0, 6, None, step) for step in (30, 40, 40)] == [0, 0, -1]


@pytest.mark.parametrize(
    ("limit", "failures", "lost_masters", "follows"),
    [(0, 1, 0, False), (1, 1, 0, True), (1, 2, 0, False), (3, 3, 0, True), (3, 3, 1, False),
     (3, 2, 1, True)],
)  # fmt: skip
def test_failures_and_lost_masters_have_one_budget(
    limit: int, failures: int, lost_masters: int, follows: bool
) -> None:
    pause = Retries(99).pause(FAILURE, 99.0, failures, job(limit, lost_masters))
    assert (pause >= 0) is follows


def test_the_last_limit_counts_while_the_job_cannot_be_read() -> None:
    retries = Retries(None)
    assert retries.pause(FAILURE, 99.0, 1, job(1)) == 0
    assert retries.pause(FAILURE, 99.0, 2, UNREADABLE) < 0


def test_the_job_at_the_start_counts_until_it_can_be_read_again() -> None:
    retries = Retries(None, job(3, failed=1))
    assert retries.pause(FAILURE, 99.0, 2, UNREADABLE) == 0
    assert retries.pause(FAILURE, 99.0, 3, UNREADABLE) < 0
    assert retries.pause(FAILURE, 99.0, 3, job(3, failed=0)) == 0


def test_a_job_that_was_never_read_limits_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert Retries(None).pause(FAILURE, 99.0, 7, UNREADABLE) == 0
    assert "the Job, which has the number of retries, cannot be read" in capsys.readouterr().out


def test_a_wrong_configuration_is_not_tried_again() -> None:
    assert Retries(9).pause(ConfigurationError("no mpirun"), 99.0, 1, None) < 0


def test_hosts_that_did_not_come_are_not_waited_for_again() -> None:
    assert Retries(9).pause(HostsTimeoutError("1 of 2 hosts did not answer"), 0.0, 1, None) < 0


def test_a_script_that_fails_twice_in_a_way_that_is_sure_to_repeat_is_not_tried_again() -> None:
    wrong = LaunchError("rank 1: TypeError", 1, "TypeError")
    assert Retries(9).pause(wrong, 2.0, 1, None) == 0
    retries = Retries(9)
    assert [retries.pause(wrong, 2.0, number, None) for number in (1, 2)] == [0, -1]
    other = LaunchError("rank 1: NameError", 1, "NameError")
    retries = Retries(9)
    assert [retries.pause(problem, 2.0, 1, None) for problem in (wrong, other)] == [0, 5]
    # All ranks fail, and any of them may be the first.
    elsewhere = LaunchError("rank 2: TypeError", 1, "TypeError")
    retries = Retries(9)
    assert [retries.pause(problem, 2.0, 1, None) for problem in (wrong, elsewhere)] == [0, -1]
    assert [Retries(9).pause(problem, 2.0, 1, None) for problem in (FAILURE, FAILURE)] == [0, 0]
    trained = Retries(9)
    assert [trained.pause(wrong, 60.0, number, None) for number in (1, 2)] == [0, 0]


def test_loss_that_is_twice_nan_ends_the_run_after_however_long() -> None:
    retries = Retries(20)
    assert retries.pause(NotANumberError(), 3600.0, 1, None) == 0
    assert retries.pause(FAILURE, 3600.0, 2, None) == 0
    assert retries.pause(NotANumberError(), 3600.0, 3, None) == 0
    assert retries.pause(NotANumberError(), 3600.0, 4, None) < 0


def test_without_a_job_that_can_be_read_no_master_counts_as_lost() -> None:
    retries = Retries(1)
    assert [retries.pause(FAILURE, 99.0, number, None) for number in (1, 2)] == [0, -1]


@pytest.mark.parametrize(
    ("seconds", "stopped_after", "slept", "goes_on"),
    [(0.4, 9, [0.2, 0.2], True), (0.0, 9, [], True), (0.4, 1, [0.2], False), (0.4, 0, [], False)],
)
def test_wait_ends_in_time_or_soon_after_a_request_to_end(
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    stopped_after: int,
    slept: list[float],
    goes_on: bool,
) -> None:
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(attempts, "time", clock)
    assert attempts.wait(seconds, lambda: len(pauses) >= stopped_after) is goes_on
    assert pauses == slept


def test_first_step_that_a_script_reports_is_further_than_none() -> None:
    retries = Retries(20)
    assert [retries.pause(FAILURE, 2.0, number, None, 1) for number in (1, 2, 3)] == [0, 0, 5]
