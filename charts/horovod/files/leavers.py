"""Which ranks of an attempt were asked to leave, and which of them wait for the others.

A rank whose script has failed tells that (files/rank_end.py), and waits until its connection to the
master is closed.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Iterator, Tuple

# A rank's host and number.
Key = Tuple[str, int]


class TerminatingRanks:
    """Those of one attempt after the other. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: set[Key] = set()
        self._ended: set[Key] = set()
        self._waiting: list[socket.socket] = []
        self._is_asking = False

    def reset(self) -> None:
        """Forget the attempt before."""
        with self._lock:
            self._asked, self._ended, self._is_asking = set(), set(), False
            self._release()

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Let no rank end before all ranks have been asked, inside of this context."""
        with self._lock:
            self._is_asking = True
        try:
            yield
        finally:
            with self._lock:
                self._is_asking = False
                self._release()

    def ask(self, host: str, rank: int) -> None:
        """Note that a rank is asked to leave."""
        with self._lock:
            self._asked.add((host, rank))

    def end(self, host: str, rank: int, waiting: socket.socket | None) -> None:
        """Note that a rank's script has ended, and close the connection when the rank may end."""
        with self._lock:
            self._ended.add((host, rank))
            if waiting:
                self._waiting.append(waiting)
            self._release()

    def _release(self) -> None:
        if self._is_asking or not self._asked <= self._ended:
            return
        for connection in self._waiting:
            connection.close()
        self._waiting = []
