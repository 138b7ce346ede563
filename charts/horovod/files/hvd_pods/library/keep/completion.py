"""Calls that wait for a GPU, and the thread that makes them."""

from __future__ import annotations

import atexit
import queue
import threading
from pathlib import Path
from typing import Callable

from .log import log
from .packed_state import StepKey

# Seconds that the end of the process waits for copies: a GPU may wait for a rank that is lost.
EXIT_TIMEOUT_SECONDS = 5.0


class CompletionThread:
    """A thread that makes the calls that wait for a GPU, in their order."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, call: Callable[[], None]) -> None:
        """Add a call for the thread. Log an exception of the call."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="keep", daemon=True)
            self._thread.start()
            atexit.register(self.wait, EXIT_TIMEOUT_SECONDS)
        self._calls.put(call)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until all calls added before have ended, or for some seconds."""
        # A process that was forked has no such thread, and nothing to wait for.
        if self._thread is not None and self._thread.is_alive():
            reached = threading.Event()
            self._calls.put(reached.set)
            reached.wait(seconds)

    def _run(self) -> None:
        while True:
            try:
                self._calls.get()()
            except Exception as problem:  # noqa: BLE001 - else whoever waits would wait for ever
                log(f"the GPU's copy of the state failed: {problem!r}")


completion_thread = CompletionThread()


class PendingWrite:
    """A packed state that a GPU still writes. It counts when all bytes are written."""

    def __init__(
        self, path: Path, key: StepKey, view: memoryview, header: bytes, wait: Callable[[], None]
    ) -> None:
        self.path = path
        self.key = key
        self.is_complete = False
        self.has_ended = threading.Event()
        self._view = view
        self._header = header
        self._wait = wait

    def finish(self) -> None:
        """Write the header as soon as all bytes are written. Log a failure of the GPU."""
        try:
            self._wait()
            self._view[: len(self._header)] = self._header
            self.is_complete = True
        except RuntimeError as problem:
            log(f"{self.path}: the GPU failed before it had copied the state: {problem}")
        finally:
            self.has_ended.set()
