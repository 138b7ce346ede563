"""Releases of a run whose objects are in a certain state."""

from __future__ import annotations

from typing import Any

from hvdchart.run.state.release import Release
from hvdchart.run.state.status import Status
from hvdchart.run.state.view import RunView
from tests.unit.hvdchart.objects import (
    MASTER,
    STATEFUL_SET,
    WORKERS,
    event,
    job,
    pod,
)

LIMIT = job(("Failed", "BackoffLimitExceeded", "Job has reached the limit"), failed=2)
BAD_IMAGE = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}
PULLING = event("hvd-worker-1", "Pod", "Pulling", "image", type="Normal", at="10:00:09")


def release(
    pods: list[Any],
    *events: Any,
    jobs: list[Any] | None = None,
    sets: list[Any] | None = None,
    record: dict[str, str] | None = None,
) -> Release:
    jobs = [job()] if jobs is None else jobs
    sets = [STATEFUL_SET] if sets is None else sets
    return Release("hvd", jobs, sets, pods, list(events), record or {})


def status(pods: list[Any], *events: Any, **more: Any) -> Status:
    return RunView(release(pods, *events, **more)).status


def beside(**more: Any) -> list[Any]:
    """A run whose other pods are up, and its second worker."""
    state = more.pop("state", None)
    return [MASTER, WORKERS[0], pod("hvd-worker-1", "worker", state, **more)]


def unschedulable(reason: str, message: str = "") -> list[Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    held = pod("hvd-worker-1", "worker", conditions=[condition], node="")
    if reason == "SchedulingGated":
        held["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    return [MASTER, WORKERS[0], held]
