"""Finds ranks of this worker that are stopped, and tells the master.

Horovod itself finds ranks that do not join a collective operation, but its own threads wait for a
rank that is stopped, and then say nothing.
"""

from __future__ import annotations

import time
from typing import Mapping

from hvd_pods.common import fast_start, notices
from hvd_pods.rank import ranks

LOOK_EVERY = 5.0
# Horovod's own variable: the seconds between two of its reports of ranks that have not joined.
PERIOD, DEFAULT_PERIOD = "HOROVOD_STALL_CHECK_TIME_SECONDS", 60.0
# States of proc(5): stopped by a signal, and by a debugger.
STOPPED = ("T", "t")


class RankWatch:
    """Remembers which ranks of this worker are stopped, and since when."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        try:
            self._period = float(environment.get(PERIOD) or DEFAULT_PERIOD)
        except ValueError:
            self._period = DEFAULT_PERIOD
        # For each stopped process: since when, and when the master was last told.
        self._stopped: dict[int, tuple[float, float]] = {}

    def look(self) -> None:
        """Look at each rank once."""
        stopped = {script.pid: script for script in ranks.running() if is_stopped(script.pid)}
        now = time.monotonic()
        self._stopped = {pid: self._stopped.get(pid, (now, now)) for pid in stopped}
        for pid, (since, told) in self._stopped.items():
            if now - told >= self._period:
                self._stopped[pid] = (since, now)
                ranks.notify(
                    stopped[pid], kind=notices.STOPPED, seconds=now - since, period=self._period
                )


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped; one that has ended is not."""
    try:
        return fast_start.read_stat(pid)[0] in STOPPED
    except OSError:
        return False
