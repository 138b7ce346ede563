"""The log of a worker's agent about its clients."""

from __future__ import annotations

import time

from hvd_pods.pod.reporting import log


class ClientLog:
    """Logs lines about clients: not more than `max_lines` in an interval.

    Anybody on the network may be a client, and must not fill the log.
    """

    def __init__(self, max_lines: int, interval_seconds: float) -> None:
        self._max_lines = max_lines
        self._interval_seconds = interval_seconds
        self._log_times: list[float] = []

    def write(self, message: str) -> None:
        """Log a line, unless there are too many."""
        now = time.monotonic()
        self._log_times = [
            logged_at for logged_at in self._log_times if now - logged_at < self._interval_seconds
        ]
        if len(self._log_times) < self._max_lines:
            self._log_times.append(now)
            log(f"agent: {message}")
