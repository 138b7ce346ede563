"""Follows the progress that ranks report, over an agent connection with one worker at a time.

All ranks make the same steps, so the files of one worker are enough; the agent connection runs
worker/report_progress.py. It cannot fail the run: it ignores invalid lines, and opens a connection
to the next worker when an agent connection ends.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Callable, NamedTuple, Sequence

from hvd_pods.master import remote
from hvd_pods.master.agent_connection import AgentConnection, AgentConnectionError
from hvd_pods.pod.metrics import parse_progress, select_progress
from hvd_pods.pod.threads import start_thread
from hvd_pods.protocol import frames
from hvd_pods.rules.events import EventSink, ProgressReported
from hvd_pods.shared.errors import RunError
from hvd_pods.shared.run import Worker

# Bytes of a line.
MAX_PROGRESS_LINE_BYTES = 4096


class Pace(NamedTuple):
    """The follower's pauses and timeouts, in seconds."""

    # Before the first look: ranks import for seconds.
    first_delay_seconds: float = 2.0
    # Between the end of an agent connection and the next one.
    reconnect_delay_seconds: float = 5.0
    # For the worker to report the last step, at the end of the training.
    last_step_timeout_seconds: float = 2.0


PACE = Pace()


class ProgressFollower:
    """Reports the progress of an attempt's ranks until `close`. Create it before they start."""

    def __init__(
        self,
        find_access: Callable[[], remote.AgentAccess],
        workers: Sequence[Worker],
        put: EventSink,
        attempt: int,
        pace: Pace = PACE,
    ) -> None:
        self._find_access = find_access
        self._pace = pace
        self._workers = workers
        self._put = put
        self._attempt = attempt
        self._began = time.monotonic()
        # The deadline for the last step. `close` sets it, and then wakes the thread.
        self._until = float("inf")
        self._woken, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._closed = threading.Event()
        self._thread = start_thread("follow-progress", self._follow)

    def close(self, *, wait_for_last_step: bool) -> None:
        """End the agent connection; with `wait_for_last_step`, wait a moment for the last step."""
        self._until = time.monotonic() + (
            self._pace.last_step_timeout_seconds if wait_for_last_step else 0.0
        )
        if not self._closed.is_set():
            self._closed.set()
            # Closing the pipe wakes the thread.
            os.close(self._waker)
        if wait_for_last_step:
            self._thread.join(self._pace.last_step_timeout_seconds)

    def _follow(self) -> None:
        number = 0
        pause = self._pace.first_delay_seconds
        while not self._closed.wait(pause):
            worker = self._workers[number % len(self._workers)]
            # After a failure, try the next worker.
            with suppress(AgentConnectionError, RunError):
                self._follow_worker(worker)
            number = number + 1
            pause = self._pace.reconnect_delay_seconds
        os.close(self._woken)

    def _follow_worker(self, worker: Worker) -> None:
        # Pass a duration, because the clocks of two nodes differ.
        began = f"{time.monotonic() - self._began:.3f}"
        program = remote.command_line("worker/report_progress.py", began)
        connection = remote.begin(self._find_access(), worker, program)
        try:
            self._read(connection)
        finally:
            connection.close()

    def _read(self, connection: AgentConnection) -> None:
        rest = b""
        is_asked = False
        while connection.exit_code is None and time.monotonic() < self._until:
            if self._closed.is_set() and not is_asked:
                # The end of its input makes the program report the last step.
                is_asked = True
                connection.send(frames.INPUT)
            remote.wait_for(connection, self._until, None if is_asked else self._woken)
            for kind, content in connection.step():
                rest += content if kind == frames.OUTPUT else b""
            *lines, rest = rest.split(b"\n")
            for line in lines:
                self._report(line.decode(errors="replace"))
            rest = rest[-MAX_PROGRESS_LINE_BYTES:]

    def _report(self, line: str) -> None:
        text = line[:MAX_PROGRESS_LINE_BYTES].replace("\t", "\n")
        reported = parse_progress(select_progress(text))
        if reported:
            self._put(ProgressReported(self._attempt, reported))
