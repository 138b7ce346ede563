"""The position in a log at which another connection continues. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

# The time that the kubelet puts before a line: in whole seconds, and the rest.
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d) ")


class LogPosition:
    """What was read of a log, so that no line is lost or read twice.

    A log can be continued at a whole second only. The lines of the last second then come again, and
    several of them may be equal.
    """

    def __init__(self) -> None:
        # The second of the last line, in RFC 3339; empty before the first line.
        self.second = ""
        # When the first connection began, if that left out older lines; empty otherwise.
        self.began = ""
        # The lines since then.
        self._read: Counter[str] = Counter()

    def unread(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines that were not read before, without their times.

        Each line begins with its time; only the kubelet's own remarks have none. The first line is
        of `second` or later.
        """
        again = self._read.copy()
        for line in lines:
            if again[line]:
                again[line] -= 1
                continue
            time = _TIME.match(line)
            second = time[1] + time[2] if time else ""
            if second > self.second:
                self.second = second
                self._read.clear()
            self._read[line] += 1
            yield line[time.end() :] if time else line
