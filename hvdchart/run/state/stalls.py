"""The rank that the others wait for, since when, and the current place of its script. Pure.

The chart's hvd_pods/rules/stall_state.py writes it to the record (docs/faults.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from hvd_pods.shared.record import RecordKey, read_count, read_object
from hvd_pods.shared.untrusted import MAX_COUNTED, one_line


@dataclass(frozen=True)
class Stall:
    """A rank that the others wait for, since when, in seconds since 1970 by the master's clock.

    `what` says how the stall was detected. `place` is the current place of its script, as FILE:LINE
    in FUNCTION; it is empty if the rank has shown no stack.
    """

    rank: int
    worker: str
    what: str
    since: float
    place: str = ""

    def text(self) -> str:
        """Return one line: rank 1 on hvd-worker-1 has not joined x, at train.py:41 in load."""
        on = f" on {self.worker}" if self.worker else ""
        at = f", at {self.place}" if self.place else ""
        return f"rank {self.rank}{on} {self.what}{at}"


def read_stall(record: Mapping[str, str]) -> Stall | None:
    """Return the stall in a release's record; None if it is missing or cannot be parsed."""
    content = read_object(record, RecordKey.STALL)
    rank = read_count(content, "rank")
    since = seconds_of(str(content.get("since", "")))
    if rank is None or rank > MAX_COUNTED or not since:
        return None
    worker, behaviour, place = (
        one_line(str(content.get(name, ""))) for name in ("worker", "what", "place")
    )
    return Stall(rank, worker, behaviour, since, place)


def seconds_of(time: str) -> float:
    """Return a time in RFC 3339 as seconds since 1970; 0 for any other text."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0.0
