"""Threads that make calls in order: slow calls never block the master's loop."""

from __future__ import annotations

import queue
import traceback
from typing import Callable

from hvd_pods.pod.threads import start_thread
from hvd_pods.rules.events import Event, EventSink, InternalError

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
ASK = "ask-ranks"
STACKS = "show-stacks"
LEFTOVERS = "end-leftovers"

Call = Callable[[], "Event | None"]


class WorkQueues:
    """Queues by name, each with a thread that makes its calls in order.

    A queue begins with its first call. The event that a call returns is put on the loop's queue.
    The threads do not keep the pod from ending.
    """

    def __init__(self, put: EventSink) -> None:
        self._put = put
        self._queues: dict[str, queue.SimpleQueue[Call]] = {}

    def add(self, name: str, call: Call) -> None:
        """Make a call after the earlier calls of this queue have returned."""
        if name not in self._queues:
            self._queues[name] = queue.SimpleQueue()
            start_thread(name, lambda: self._work(self._queues[name]))
        self._queues[name].put(call)

    def _work(self, calls: queue.SimpleQueue[Call]) -> None:
        while True:
            call = calls.get()
            try:
                event = call()
            except Exception:  # noqa: BLE001 - the loop ends with it, and the Job retries
                event = InternalError(traceback.format_exc())
            if event:
                self._put(event)
