"""The events that the master creates about its Job; docs/life.md says when it creates each."""

from __future__ import annotations

import enum
from typing import Literal

# The kind of an event in the time line of a run (hvdchart/watch).
Kind = Literal["stage", "attempt", "fault", "stall", "warning", "end"]


class RunEvent(enum.Enum):
    """An event by its reason, with its kind in the time line.

    `sets_stage`: the run has entered a stage, which the metric hvdchart_stage shows.
    """

    WAITING = "Waiting", "stage", True
    STARTED = "Started", "stage", True
    WORKERS_MISSING = "WorkersMissing", "warning"
    WORKERS_READY = "WorkersReady", "stage", True
    TRAINING = "Training", "attempt", True
    SHRUNK = "Shrunk", "stage"
    GROWN = "Grown", "stage"
    STALLED = "Stalled", "stall"
    NOT_A_NUMBER = "NotANumber", "warning"
    WORKER_LOST = "WorkerLost", "fault"
    GPU_FAILED = "GpuFailed", "fault"
    FINISHED = "Finished", "end", True
    LEASE_ENDED = "LeaseEnded", "warning"
    FAILED = "Failed", "fault", True

    def __init__(self, reason: str, kind: Kind, sets_stage: bool = False) -> None:
        self.reason = reason
        self.kind = kind
        self.sets_stage = sets_stage

    @property
    def is_warning(self) -> bool:
        """Whether the event has Kubernetes' type Warning."""
        return self.kind in ("fault", "stall", "warning")


# By the reason of an event of the API server.
BY_REASON = {event.reason: event for event in RunEvent}
