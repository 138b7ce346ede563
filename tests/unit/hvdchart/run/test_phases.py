"""The phases from the deployment of a run to its end."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.run.phases import Phase, phase_of
from hvdchart.run.release import Release
from tests.unit.hvdchart.runs import (
    CREATING,
    JOB,
    MASTER,
    STATEFUL_SET,
    WORKERS,
    event,
    job,
    pod,
    terminated,
)

UNPLACED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
NO_NODE = pod("hvd-worker-1", "worker", node="", conditions=[{**UNPLACED, "message": "0/3 nodes"}])
BEING_MADE = pod("hvd-worker-1", "worker", CREATING)
BAD_IMAGE = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}
TRAINING = event(JOB, "Job", "Training", "starts", type="Normal", at="3")
READY = event(JOB, "Job", "HostsReady", "answer", type="Normal", at="2")
RECORD = {"job": JOB, "progress": '{"step": 7}'}


def phase(
    pods: list[Any], *events: Any, jobs: list[Any] | None = None, record: Any = None
) -> Phase:
    jobs = [job()] if jobs is None else jobs
    return phase_of(Release("hvd", jobs, [STATEFUL_SET], pods, list(events), record or {}))


def gated() -> Any:
    held = pod("hvd-worker-1", "worker", node="")
    held["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    held["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    ]
    return held


@pytest.mark.parametrize(
    ("pods", "events", "expected"),
    [
        ([], [], "scheduling: 0 of 3 pods have a node"),
        ([MASTER, WORKERS[0], gated()], [],
         "queued: in a queue (scheduling gate kueue.x-k8s.io/admission)"),
        ([MASTER, WORKERS[0], NO_NODE], [],
         "scheduling: 2 of 3 pods have a node; cannot be scheduled: 0/3 nodes"),
        ([MASTER, WORKERS[0], BEING_MADE], [], "starting: hvd-worker-1"),
        ([MASTER, WORKERS[0], BEING_MADE], [event("hvd-worker-1", "Pod", "Pulling", "image")],
         "pulling images: hvd-worker-1"),
        ([MASTER, WORKERS[0], BEING_MADE],
         [event("hvd-worker-1", "Pod", reason, "image") for reason in ("Pulling", "Pulled")],
         "starting: hvd-worker-1"),
        ([MASTER, WORKERS[0], pod("hvd-worker-1", "worker", BAD_IMAGE)], [],
         "pulling images: hvd-worker-1; ImagePullBackOff of image team/train:1: Back-off; "),
        ([MASTER, *WORKERS], [], "starting"),
        ([MASTER, *WORKERS], [READY], "hosts ready"),
        ([MASTER, *WORKERS], [READY, TRAINING], "training"),
        # A worker that comes again later does not take a run back that trains.
        ([MASTER, WORKERS[0]], [READY, TRAINING], "training"),
        ([MASTER, *WORKERS], [TRAINING, event(JOB, "Job", "Started", "again", at="4")], "starting"),
        # Of the run before.
        ([MASTER, *WORKERS], [event("hvd-master-old", "Job", "Training", "starts")], "starting"),
    ],
)  # fmt: skip
def test_the_phase_and_what_it_waits_for(pods: list[Any], events: list[Any], expected: str) -> None:
    shown = str(phase(pods, *events))
    assert shown.startswith(expected) if expected.endswith("; ") else shown == expected


def test_a_run_that_trains_has_its_progress() -> None:
    assert str(phase([MASTER, *WORKERS], TRAINING, record=RECORD)) == "training: step 7"


def test_a_run_that_is_over_says_how() -> None:
    assert str(phase([], jobs=[job(("Complete", "", ""))])) == "done: finished"
    lost = pod(f"{JOB}-x", "master", terminated(1, "boom"), phase="Failed")
    failed = job(("Failed", "BackoffLimitExceeded", "limit"))
    assert str(phase([lost], jobs=[failed])) == "done: failed, boom"


def test_a_run_without_a_job_or_with_a_suspended_one_is_queued() -> None:
    assert str(phase([], jobs=[])) == "queued"
    assert str(phase([], jobs=[job(suspend=True)])) == "queued: the Job is suspended"
