"""How an attempt ends: whether the run goes on, its record, and what happens to the workers."""

from __future__ import annotations

from typing import Any

import pytest

from hvd_pods.common.errors import ConfigurationError, InterruptedRunError, LaunchError, RunError
from hvd_pods.master import ending, kube
from hvd_pods.master.record import RunRecord
from tests.fakes import faults
from tests.fakes.api import FakeApi
from tests.unit.podfiles.jobs import NO_ANSWERS, START, make_job
from tests.unit.podfiles.runs import make_record, make_run


@pytest.mark.parametrize(
    ("current", "code", "seconds", "again"),
    [
        (make_job(), 0, 5, False),
        (make_job(), 78, 5, False),
        (make_job(), 1, 5, True),
        (make_job(1), 1, 5, True),
        (make_job(2), 1, 5, False),
        (make_job(3), 1, 5, False),
        # Kubernetes 1.31 and later announce the failure first; earlier ones set Failed alone.
        (make_job(0, ("FailureTarget", "DeadlineExceeded")), 143, 5, False),
        (make_job(0, ("Failed", "DeadlineExceeded")), 143, 5, False),
        (make_job(0, ("Suspended", "JobSuspended")), 143, 5, True),
        # The next attempt would begin 10 s later, the one after it 20 s.
        (make_job(deadline=60), 1, 49, True),
        (make_job(deadline=60), 1, 50, False),
        (make_job(deadline=60), 1, 51, False),
        (make_job(1, deadline=60), 1, 39, True),
        (make_job(1, deadline=60), 1, 41, False),
    ],
)
def test_whether_another_attempt_can_follow(
    current: Any, code: int, seconds: float, again: bool
) -> None:
    assert ending.will_retry(current, code, START + seconds) is again


@pytest.mark.parametrize(("failed", "pause"), [(0, 10), (3, 80), (5, 320), (6, 360), (9, 360)])
def test_the_pause_before_an_attempt_doubles_up_to_six_minutes(failed: int, pause: int) -> None:
    current = make_job(failed, deadline=1000)
    current["spec"]["backoffLimit"] = 20
    assert ending.will_retry(current, 1, START + 1000 - pause - 1)
    assert not ending.will_retry(current, 1, START + 1000 - pause + 1)


def test_a_job_without_a_status_yet_may_try_again() -> None:
    fresh = {"metadata": {}, "spec": {"backoffLimit": 1, "activeDeadlineSeconds": 5}}
    assert ending.will_retry(fresh, 1, START)
    assert ending.deadline(fresh) == float("inf")


def test_the_deadline_counts_from_the_start_in_utc() -> None:
    assert ending.deadline(make_job(deadline=60)) == START + 60
    assert ending.deadline(make_job()) == float("inf")


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}],
         "BackoffLimitExceeded"),
        ([{"type": "Failed", "status": "True"}], "Failed"),
        ([{"type": "Failed", "status": "False", "reason": "x"}], ""),
        ([{"type": "Complete", "status": "True", "reason": "x"}], ""),
        (None, ""),
    ],
)  # fmt: skip
def test_why_a_job_creates_no_more_pods(conditions: Any, reason: str) -> None:
    assert ending.failure_reason({"status": {"conditions": conditions}}) == reason


@pytest.mark.parametrize(
    ("current", "words"),
    [
        (None, "removed its Job"),
        (make_job(0, ("FailureTarget", "DeadlineExceeded"), deadline=60),
         "longer than master.activeDeadlineSeconds=60"),
        (make_job(0, ("Failed", "BackoffLimitExceeded")), "deleted or evicted"),
        (make_job(), "deleted or evicted"),
    ],
)  # fmt: skip
def test_why_the_master_was_asked_to_end(current: Any, words: str) -> None:
    problem = ending.interruption(current)
    assert words in str(problem)
    assert problem.exit_code == 143


@pytest.fixture
def record(api_server: FakeApi) -> RunRecord:
    api_server.put("core/configmaps", {"metadata": {"name": "hvd-run"}})
    for name in ("hvd-cpu", "hvd-gpu", "another"):
        item = {"metadata": {"name": name}, "spec": {"replicas": 2}}
        api_server.put("apps/statefulsets", item)
    return make_record(kube.Api())


def replicas(api_server: FakeApi) -> dict[str, int]:
    return {
        item["metadata"]["name"]: item["spec"]["replicas"]
        for item in api_server.items("apps/statefulsets")
    }


def recorded(api_server: FakeApi) -> tuple[str, str] | None:
    item = api_server.find("core/configmaps", "hvd-run") or {}
    return (item["data"]["state"], item["data"]["reason"]) if "data" in item else None


@pytest.mark.parametrize(
    ("cleanup", "problem", "is_scaled_down"),
    [
        ("OnSuccess", None, True),
        ("OnSuccess", ConfigurationError("no mpirun"), False),
        ("Always", None, True),
        ("Always", ConfigurationError("no mpirun"), True),
        ("Never", None, False),
        ("Never", ConfigurationError("no mpirun"), False),
    ],
)
def test_the_end_is_recorded_and_the_runs_workers_are_scaled_down_as_cleanup_says(
    record: RunRecord,
    api_server: FakeApi,
    cleanup: str,
    problem: RunError | None,
    is_scaled_down: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ending.finish(make_run(cleanup=cleanup), kube.Api(), make_job(), record, problem, stopped=False)
    number = 0 if is_scaled_down else 2
    assert replicas(api_server) == {"hvd-cpu": number, "hvd-gpu": number, "another": 2}
    assert recorded(api_server) == (("Failed", "no mpirun") if problem else ("Finished", ""))
    assert ("workers scaled to 0" in capsys.readouterr().out) is is_scaled_down


def test_an_attempt_that_another_follows_leaves_record_and_workers_alone(
    record: RunRecord, api_server: FakeApi
) -> None:
    run = make_run(cleanup="Always")
    ending.finish(
        run, kube.Api(), make_job(1), record, InterruptedRunError("asked to end"), stopped=True
    )
    assert recorded(api_server) is None
    assert set(replicas(api_server).values()) == {2}


def test_a_failure_without_another_attempt_is_recorded_whatever_the_job_allows(
    record: RunRecord, api_server: FakeApi
) -> None:
    """The master made all attempts, and ends with a code by which the Job makes no other one."""
    run, failure = make_run(cleanup="Always"), LaunchError("exit code 3", 3)
    ending.finish(run, kube.Api(), make_job(), record, failure, stopped=False)
    assert recorded(api_server) == ("Failed", "exit code 3")
    assert replicas(api_server) == {"hvd-cpu": 0, "hvd-gpu": 0, "another": 2}


def test_the_last_attempt_allowed_records_its_failure(
    record: RunRecord, api_server: FakeApi
) -> None:
    run = make_run(cleanup="Always")
    ending.finish(
        run, kube.Api(), make_job(2), record, InterruptedRunError("asked to end"), stopped=True
    )
    assert recorded(api_server) == ("Failed", "asked to end")
    assert replicas(api_server) == {"hvd-cpu": 0, "hvd-gpu": 0, "another": 2}


def test_workers_are_scaled_to_zero_after_a_success_although_the_job_cannot_be_read(
    api_server: FakeApi, record: RunRecord
) -> None:
    ending.finish(make_run(), kube.Api(), ending.UNREADABLE, record, None, stopped=False)
    assert replicas(api_server) == {"hvd-cpu": 0, "hvd-gpu": 0, "another": 2}
    assert recorded(api_server) == ("Finished", "")


def test_without_a_job_record_and_workers_are_left_alone(
    record: RunRecord, api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    ending.finish(make_run(cleanup="Always"), kube.Api(), None, record, None, stopped=False)
    assert recorded(api_server) is None
    assert set(replicas(api_server).values()) == {2}
    assert "the workers are not scaled down" in capsys.readouterr().out


@pytest.mark.parametrize("failure", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_a_finished_training_stays_finished_when_the_api_fails_at_its_end(
    record: RunRecord,
    api_server: FakeApi,
    failure: faults.Failure,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api_server.fail("PATCH", "", failure, times=9)
    ending.finish(make_run(), kube.Api(), make_job(), record, None, stopped=False)
    output = capsys.readouterr().out
    assert "cannot write the record of this run: " in output
    assert "cannot scale hvd-cpu to 0: " in output
    assert "cannot scale hvd-gpu to 0: " in output


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("failure", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_the_end_waits_for_an_api_server_that_is_away(
    record: RunRecord, api_server: FakeApi, failure: faults.Failure
) -> None:
    if failure is NO_ANSWERS["429"]:
        # Each failure is a second.
        failure = faults.status(429)
    for method in ("GET", "PATCH"):
        api_server.fail(method, "", failure, times=6)
    api_server.put("batch/jobs", make_job())
    api = kube.Api()
    job = ending.read_job(api, False)
    assert job == make_job()
    ending.finish(make_run(), api, job, record, None, stopped=False)
    assert recorded(api_server) == ("Finished", "")
    assert replicas(api_server) == {"hvd-cpu": 0, "hvd-gpu": 0, "another": 2}
