"""Threads that make calls in order: slow calls never block the master's loop."""

from __future__ import annotations

import queue
import traceback
from typing import Callable

from hvd_pods.cluster.spawn import spawn
from hvd_pods.rules.events import Event, InternalError, Put

# Writes of the record stay in order. While the API server hangs, calls that an attempt waits for
# (the Job, the end of the attempt before) do not wait behind calls that may be late.
RECORD = "record"
JOB = "job"
LEASE = "lease"
PODS = "pods"
PREPARE = "prepare"
DELIVER = "deliver"
GROW = "prepare-newcomers"
JUDGE = "judge"
RESULTS = "results"
ASK = "ask-ranks"
STACKS = "show-stacks"
LEFTOVERS = "end-leftovers"

Call = Callable[[], "Event | None"]


class Lanes:
    """Threads by name, each started by its first call; a lane makes its calls in order.

    The event that a call returns is put on the loop's queue. A lane does not keep the pod from
    ending.
    """

    def __init__(self, put: Put) -> None:
        self._put = put
        self._lanes: dict[str, queue.SimpleQueue[Call]] = {}

    def call(self, lane: str, work: Call) -> None:
        """Make a call after the earlier calls of this lane have returned."""
        if lane not in self._lanes:
            self._lanes[lane] = queue.SimpleQueue()
            spawn(lane, lambda: self._follow(self._lanes[lane]))
        self._lanes[lane].put(work)

    def _follow(self, calls: queue.SimpleQueue[Call]) -> None:
        while True:
            work = calls.get()
            try:
                event = work()
            except Exception:  # noqa: BLE001 - the loop ends with it, and the Job retries
                event = InternalError(traceback.format_exc())
            if event:
                self._put(event)
