"""Reads Horovod's messages about ranks that have not joined, in the launcher's error output."""

from __future__ import annotations

import re
from typing import Callable

# Horovod's message; a line for each missing rank follows (horovod/common/stall_inspector.cc).
STALLED = re.compile(r"are waiting for remainder of ranks for more than (\d{1,9}) seconds")
MISSING = re.compile(r"(\d{1,9})!?: \[(.*)\]")
# Lines of other ranks that may come between those of a message.
STRAY_LINES = 20
# Ranks that are read in a second; further ranks are not named.
MAX_RANKS_PER_SECOND = 1000
# Characters of the text about an operation that a rank has not joined.
MAX_OPERATION_CHARACTERS = 160


class StallReader:
    """Finds Horovod's messages about ranks that have not joined, in the launcher's error output.

    `clock` returns seconds. At most MAX_RANKS_PER_SECOND ranks are found: training code can write
    such lines without limit, and the master keeps each until it has decided about it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._period = 0.0
        self._lines = 0
        # The start of the present second, and the number of ranks found since then.
        self._since = clock()
        self._read = 0

    def read(self, line: str) -> tuple[int, str, float] | None:
        """Read a line; return a rank, what it has not joined, and for how many seconds, or None."""
        report = STALLED.search(line)
        if report:
            self._period = float(report[1])
            self._lines = STRAY_LINES
            return None
        missing = MISSING.fullmatch(line) if self._lines else None
        if missing is None:
            self._lines = max(0, self._lines - 1)
            return None
        now = self._clock()
        if now - self._since >= 1.0:
            self._since = now
            self._read = 0
        self._read += 1
        if self._read > MAX_RANKS_PER_SECOND:
            return None
        return (
            int(missing[1]),
            f"has not joined {missing[2][:MAX_OPERATION_CHARACTERS]}",
            self._period,
        )
