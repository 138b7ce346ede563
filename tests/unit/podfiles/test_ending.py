"""How an attempt ends: whether the run goes on, what is kept of it, what is said."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import ending
import podstatus
import pytest
import record
import statefulsets

BEGUN = datetime(2026, 1, 1, 10, 0, 0, tzinfo=UTC).timestamp()


def job(failed: int = 0, *conditions: tuple[str, str], deadline: int | None = None) -> Any:
    """A Job that may fail three times; conditions are (type, reason)."""
    return {
        "metadata": {},
        "spec": {"backoffLimit": 2, "activeDeadlineSeconds": deadline},
        "status": {
            "startTime": "2026-01-01T10:00:00Z",
            "failed": failed,
            "conditions": [{"type": k, "status": "True", "reason": r} for k, r in conditions],
        },
    }


@pytest.mark.parametrize(
    ("found", "code", "seconds", "again"),
    [
        (job(), 0, 5, False),
        (job(), 78, 5, False),
        (job(), 1, 5, True),
        (job(1), 1, 5, True),
        (job(2), 1, 5, False),
        # Kubernetes 1.31 and later say first that it will fail; earlier ones that it has.
        (job(0, ("FailureTarget", "DeadlineExceeded")), 143, 5, False),
        (job(0, ("Failed", "DeadlineExceeded")), 143, 5, False),
        (job(0, ("Suspended", "JobSuspended")), 143, 5, True),
        # The next attempt would begin 10 s later, the one after it 20 s.
        (job(deadline=60), 1, 49, True),
        (job(deadline=60), 1, 51, False),
        (job(1, deadline=60), 1, 39, True),
        (job(1, deadline=60), 1, 41, False),
    ],
)
def test_whether_another_attempt_can_follow(
    found: Any, code: int, seconds: float, again: bool
) -> None:
    assert ending.may_try_again(found, code, BEGUN + seconds) is again


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "removed its Job"),
        (job(0, ("FailureTarget", "DeadlineExceeded"), deadline=60), "activeDeadlineSeconds=60"),
        (job(), "deleted or evicted"),
    ],
)
def test_why_the_master_was_asked_to_end(found: Any, words: str) -> None:
    problem = ending.interruption(found, 143)
    assert words in str(problem)
    assert problem.exit_code == 143


@pytest.mark.parametrize(
    ("change", "ended"),
    [
        ({}, True),
        ({"state": "Failed"}, True),
        ({"state": "Running"}, False),
        ({"job": "hvd-master-other"}, False),
        # An attempt of this very Job that took itself for the last one.
        ({"uid": "2"}, False),
    ],
)
def test_only_the_same_run_under_another_job_has_ended_before(
    change: dict[str, str], ended: bool
) -> None:
    data = {"job": "hvd-master-1", "uid": "1", "state": "Finished", **change}
    assert record.ended_before(data, {"HVD_JOB": "hvd-master-1", "HVD_JOB_UID": "2"}) is ended
    assert not record.ended_before({}, {"HVD_JOB": "hvd-master-1", "HVD_JOB_UID": "2"})


def test_why_a_pod_was_not_made() -> None:
    def event(message: str, second: int) -> dict[str, Any]:
        return {"message": message, "lastTimestamp": f"2026-01-01T10:00:0{second}Z"}

    events = [event("pod hvd-worker-0: old", 1), event("pod hvd-worker-0: new", 2)]
    assert statefulsets.newest_about(events, "hvd-worker-0") == "pod hvd-worker-0: new"
    # The controller stops at the first pod that is refused: it stands for all.
    assert statefulsets.newest_about(events, "hvd-worker-1") == "pod hvd-worker-0: new"
    assert statefulsets.newest_about([], "hvd-worker-1") == ""


@pytest.mark.parametrize(
    ("reason", "hopeless"),
    [
        ("ImagePullBackOff: no such image", True),
        ('the pod does not exist: pod rejected: RuntimeClass "kata" not found', True),
        ("the pod does not exist: forbidden: no PriorityClass with name high was found", True),
        ("the pod does not exist: exceeded quota: gpus", False),
        ("Unschedulable: 0/1 nodes", False),
    ],
)
def test_what_neither_waiting_nor_another_attempt_mends(reason: str, hopeless: bool) -> None:
    assert podstatus.is_hopeless(reason) is hopeless
