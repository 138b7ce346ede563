"""Which ranks of an attempt were asked to end, and which of them wait for the others.

When the script of such a rank has failed, the rank sends a notice (files/rank_end.py) and waits
until the master closes the connection.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Iterator, Tuple

# A rank's host and number.
Key = Tuple[str, int]


class TerminatingRanks:
    """The ranks of the present attempt. All methods may be called from any thread."""

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
        """While this context lasts, let no rank end: not all of them have been asked yet."""
        with self._lock:
            self._is_asking = True
        try:
            yield
        finally:
            with self._lock:
                self._is_asking = False
                self._release()

    def ask(self, host: str, rank: int) -> None:
        """Note that a rank was asked to end."""
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
