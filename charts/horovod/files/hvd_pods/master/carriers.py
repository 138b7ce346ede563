"""The threads of the master. They carry bytes and wait for answers; they decide nothing.

A lane is a thread that makes calls in the order in which they are asked for. What a call returns is
put on the loop's queue. All threads are daemons: none keeps the pod from ending.
"""

from __future__ import annotations

import queue
import traceback
from typing import Callable

from hvd_pods.cluster.spawn import spawn
from hvd_pods.master.messages import Defect, Event

Tell = Callable[[Event], None]
Call = Callable[[], "Event | None"]


class Lanes:
    """Lanes by name, each from its first call on."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._lanes: dict[str, queue.SimpleQueue[Call]] = {}

    def call(self, lane: str, work: Call) -> None:
        """Make a call when those before it in this lane have returned."""
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
                event = Defect(traceback.format_exc())
            if event:
                self._tell(event)
