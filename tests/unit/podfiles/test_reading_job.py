"""How the master reads its Job after an attempt, and waits for the Job's failure."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from hvd_pods.master import ending, kube
from tests.fakes import faults
from tests.fakes.api import FakeApi
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.jobs import NO_ANSWERS, START, make_job
from tests.unit.podfiles.master_pod import JOB


@pytest.mark.parametrize("stopped", [False, True])
def test_the_job_is_read_without_a_wait_when_no_deadline_is_near(
    api_server: FakeApi, stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = make_job(deadline=100)
    api_server.put("batch/jobs", far)
    monkeypatch.setattr("time.time", lambda: START + 40)
    assert ending.read_job(kube.Api(), stopped) == far
    assert len(api_server.requests) == 1


def test_a_failed_job_is_not_waited_for(
    api_server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = make_job(0, ("Failed", "DeadlineExceeded"), deadline=100)
    api_server.put("batch/jobs", failed)
    monkeypatch.setattr("time.time", lambda: START + 101)
    assert ending.read_job(kube.Api(), True) == failed
    assert len(api_server.requests) == 1


def test_an_attempt_that_ended_by_itself_does_not_wait_for_the_deadline(
    api_server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api_server.put("batch/jobs", make_job(deadline=100))
    monkeypatch.setattr("time.time", lambda: START + 101)
    ending.read_job(kube.Api(), False)
    assert len(api_server.requests) == 1


@pytest.fixture
def reading(
    api_server: FakeApi,
    background: Callable[..., Future[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> Future[Any]:
    """A master that was asked to end reads its Job, just before the deadline by its own clock."""
    api_server.put("batch/jobs", make_job(deadline=100))
    monkeypatch.setattr("time.time", lambda: START + 41)
    future = background(ending.read_job, kube.Api(), True)
    api_server.wait_for_watch("batch/jobs")
    assert api_server.requests[-1].query == {
        "watch": "1", "fieldSelector": f"metadata.name={JOB}", "timeoutSeconds": "10",
    }  # fmt: skip
    return future


def test_near_the_deadline_the_jobs_failure_is_waited_for(
    reading: Future[Any], api_server: FakeApi
) -> None:
    api_server.put("batch/jobs", make_job(1, deadline=100))
    failed = make_job(1, ("FailureTarget", "DeadlineExceeded"), deadline=100)
    api_server.put("batch/jobs", failed)
    assert reading.result(TIMEOUT) == failed


def test_a_job_that_does_not_fail_in_time_is_returned_as_it_is_then(
    reading: Future[Any], api_server: FakeApi
) -> None:
    changed = make_job(1, deadline=100)
    api_server.put("batch/jobs", changed)
    api_server.end_watches()
    assert reading.result(TIMEOUT) == changed


def test_a_job_that_is_deleted_during_the_wait_is_not_returned(
    reading: Future[Any], api_server: FakeApi
) -> None:
    deleted = make_job(deadline=100)
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T10:01:00Z"
    api_server.put("batch/jobs", deleted)
    api_server.remove("batch/jobs", JOB)
    assert reading.result(TIMEOUT) is None


def test_a_watch_that_the_server_gives_up_returns_the_job_as_it_was(
    reading: Future[Any], api_server: FakeApi
) -> None:
    api_server.expire()
    assert reading.result(TIMEOUT) == make_job(deadline=100)


def test_a_watch_that_is_cut_leaves_the_job_as_it_was_read(
    reading: Future[Any], api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.end_watches(faults.cut_chunk)
    assert reading.result(TIMEOUT)["metadata"]["name"] == make_job()["metadata"]["name"]
    assert "cannot watch the Job: " in capsys.readouterr().out


@pytest.mark.parametrize("status", [403, 404])
def test_a_job_that_an_upgrade_removed_is_gone(api_server: FakeApi, status: int) -> None:
    api_server.fail("GET", "batch/jobs", faults.status(status))
    assert ending.read_job(kube.Api(), False) is None


@pytest.mark.parametrize("failure", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_a_job_that_cannot_be_read_may_retry_a_failure_but_not_a_success(
    api_server: FakeApi, failure: faults.Failure, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.put("batch/jobs", make_job())
    api_server.fail("GET", "batch/jobs", failure)
    unreadable = ending.read_job(kube.Api(), False)
    assert unreadable == ending.UNREADABLE
    assert "cannot read the Job: " in capsys.readouterr().out
    assert ending.will_retry(unreadable, 1, 0.0)
    assert not ending.will_retry(unreadable, 0, 0.0)


def test_a_job_that_is_being_deleted_is_gone(api_server: FakeApi) -> None:
    going = make_job()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T10:01:00Z"
    api_server.put("batch/jobs", going)
    assert ending.read_job(kube.Api(), False) is None
