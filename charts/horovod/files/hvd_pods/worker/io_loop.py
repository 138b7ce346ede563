"""Calls functions when descriptors are ready: the agent's only thread waits here."""

from __future__ import annotations

import os
import selectors
from contextlib import suppress
from typing import Callable

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class Loop:
    """Descriptors, the events to wait for, and the functions to call when they are ready.

    A function may watch other descriptors, and close any.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, descriptor: int, events: int, ready: Callable[[], None]) -> None:
        """Wait for READ, WRITE, both or no event."""
        key = self._selector.get_map().get(descriptor)
        if not events:
            self.unwatch(descriptor)
        elif key is None:
            self._selector.register(descriptor, events, ready)
        elif key.events != events:
            self._selector.modify(descriptor, events, ready)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor. It may be unknown or closed."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a descriptor that may be watched."""
        self.unwatch(descriptor)
        os.close(descriptor)

    def wait(self, seconds: float) -> None:
        """Call the functions of ready descriptors; wait at most `seconds`, or forever."""
        for key, _ in self._selector.select(None if seconds == float("inf") else seconds):
            # A function before this one may have closed the descriptor.
            if self._selector.get_map().get(key.fd) == key:
                key.data()
