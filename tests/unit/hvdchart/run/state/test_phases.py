"""How far a run has come, and what it waits for."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hvd_pods.shared.contract import COMMAND
from hvdchart.run.state.view import RunView
from hvdchart.script.options import RUN_COMMAND
from tests.unit.hvdchart.objects import (
    CREATING,
    DONE,
    FAILED_MASTER,
    JOB,
    MASTER,
    WORKERS,
    event,
    job,
    pod,
)
from tests.unit.hvdchart.run.state.releases import (
    BAD_IMAGE,
    LIMIT,
    PULLING,
    beside,
    release,
    unschedulable,
)

TRAINING = event(JOB, "Job", "Training", "starts", type="Normal", at="3")
OLD_JOB = {"kind": "Job", "name": JOB, "uid": "uid-old"}
READY = event(JOB, "Job", "WorkersReady", "answer", type="Normal", at="2")
PULLED = event("hvd-worker-1", "Pod", "Pulled", "image")


@pytest.mark.parametrize(
    ("pods", "events", "expected"),
    [
        ([], [], "scheduling: 0 of 3 "),
        (
            unschedulable("SchedulingGated"),
            [],
            r"queued: .*\bkueue\.x-k8s\.io/admission\b",
        ),
        (
            unschedulable("Unschedulable", "0/3 nodes"),
            [],
            "scheduling: 2 of 3 .*: 0/3 nodes",
        ),
        (beside(state=CREATING), [], "starting: hvd-worker-1"),
        (beside(state=CREATING), [PULLING], "pulling images: hvd-worker-1"),
        (beside(state=CREATING), [PULLING, PULLED], "starting: hvd-worker-1"),
        ([MASTER, *WORKERS], [], "starting"),
        ([MASTER, *WORKERS], [READY, TRAINING], "training: step 7"),
        # A worker that comes again later does not take a run back that trains.
        ([MASTER, WORKERS[0]], [READY, TRAINING], "training: step 7"),
        ([MASTER, *WORKERS], [TRAINING, event(JOB, "Job", "Started", "again", at="4")], "starting"),
        # Of a Job and a pod of the same names, in the release before.
        ([MASTER, *WORKERS], [{**TRAINING, "involvedObject": OLD_JOB}], "starting"),
        (
            beside(state=CREATING),
            [{**PULLING, "involvedObject": {**PULLING["involvedObject"], "uid": "uid-old"}}],
            "starting: hvd-worker-1",
        ),
        # Of the run before.
        ([MASTER, *WORKERS], [event("hvd-master-old", "Job", "Training", "starts")], "starting"),
        (
            [pod("hvd-master-old-x", "master", BAD_IMAGE, job="hvd-master-old")],
            [],
            "scheduling: 0 of 3 ",
        ),
    ],
)
def test_the_phase_and_what_it_waits_for(pods: list[Any], events: list[Any], expected: str) -> None:
    record = {"job": JOB, "progress": '{"step": 7}'}
    phase = str(RunView(release(pods, *events, record=record)).phase)
    assert re.match(expected if ":" in expected else f"{expected}$", phase), phase


def test_the_phase_of_a_script_names_the_options_of_its_command() -> None:
    run = job()
    marks = {"annotations": {COMMAND: RUN_COMMAND}}
    run["spec"].setdefault("template", {}).setdefault("metadata", {}).update(marks)
    pulls = {"waiting": {"reason": "ErrImagePull", "message": "not there"}}
    phase = str(RunView(release(beside(state=pulls), jobs=[run])).phase)
    assert "--image" in phase
    assert "image.repository" not in phase


@pytest.mark.parametrize(
    ("pods", "run", "expected"),
    [
        ([FAILED_MASTER], LIMIT, "done: failed, boom"),
        ([], DONE, "done: finished"),
        ([], job(suspend=True), "queued: "),
    ],
    ids=["failed", "finished", "suspended"],
)
def test_the_phase_without_running_pods_is_that_of_the_job(
    pods: list[Any], run: Any, expected: str
) -> None:
    assert str(RunView(release(pods, jobs=[run])).phase).startswith(expected)
