"""Which rank the others wait for, since when, and where its script is. Pure.

The master names the rank in the event Stalled, and its stack follows in the log (docs/life.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from hvd_pods.common.hostile import one_line
from hvd_pods.common.run_events import RunEvent
from hvdchart.run.release import Object, event_time

# The text of the event, and of the line in the log, for the first rank of several.
_STALLED = re.compile(r"rank (\d{1,7})(?: on (\S+))? (.+?) for (\d{1,9}) s\b")
_SHOWN = re.compile(r"\[hvd \+[0-9.]+s\] (?:[^ :]+: )(.*)")
_RANK = re.compile(r"rank (\d{1,7}) shows its Python stack")
_FRAME = re.compile(r'\s*File "([^"]+)", line (\d{1,9}) in (.+)')
# Where the user's code is in a pod (hvd_pods/common/paths.py), below a digest.
_CODE = re.compile(r"^/horovod/code/[^/.][^/]*/")
_OTHERS = ("/site-packages/", "/dist-packages/", "/lib/python", "/horovod/", "<frozen ")
_LONGEST = 200
# The master's events after which no rank of before keeps others waiting.
_GOES_ON = {event.reason for event in (RunEvent.TRAINING, RunEvent.FAILED, RunEvent.FINISHED)}
# Seconds to which the times of steps and events are rounded.
_ROUNDING = 1.0
# Lines that a stack has at most: more are those of somebody else.
_MOST_FRAMES = 400


@dataclass(frozen=True)
class Stall:
    """A rank that the others wait for, since when, and when the master has named it.

    Times are in seconds since 1970. `what` says how it was found; `place` is where its script is,
    as FILE:LINE in FUNCTION, and empty while nobody has read the log. Only a script that reports
    its steps shows whether the stall has lasted until now (`is_sure`).
    """

    rank: int
    host: str
    what: str
    since: float
    named: float
    place: str = ""
    is_sure: bool = False

    def text(self) -> str:
        """In one line: rank 1 on hvd-worker-1 has not joined x, at train.py:41 in load."""
        on = f" on {self.host}" if self.host else ""
        at = f", at {self.place}" if self.place else ""
        return f"rank {self.rank}{on} {self.what}{at}"


def parse_stall(message: str, time: str) -> Stall | None:
    """The stall that an event reports at a time in RFC 3339; None for another text."""
    found = _STALLED.search(one_line(message, 1200))
    if not found:
        return None
    named = seconds_of(time)
    since = max(0.0, named - int(found[4]))
    return Stall(int(found[1]), found[2] or "", one_line(found[3], _LONGEST), since, named)


def find_stall(events: Iterable[Object], step_time: str) -> Stall | None:
    """The rank that the others wait for: nothing has gone on since the master has named it.

    `events` are those about the Job. `step_time` is when the last step was reported, in RFC 3339;
    empty if none was.
    """
    stall = None
    for event in events:
        if event.get("reason") == RunEvent.STALLED.reason:
            stall = parse_stall(str(event.get("message", "")), event_time(event)) or stall
        elif event.get("reason") in _GOES_ON:
            stall = None
    stepped = seconds_of(step_time)
    if stall is None or stepped > stall.named + _ROUNDING:
        return None
    return replace(stall, is_sure=stepped > 0)


def place_of(rank: int, lines: Iterable[str]) -> str:
    """Where the script of a rank is, by the last stack of it in the master's log; else empty.

    That is the innermost frame of the user's own code, else that of no library.
    """
    place = ""
    frames: list[tuple[str, str, str]] | None = None
    for line in lines:
        shown = _SHOWN.match(line)
        if not shown:
            continue
        head = _RANK.match(shown[1])
        frame = _FRAME.match(shown[1])
        if head:
            frames = [] if int(head[1]) == rank else None
        elif frame and frames is not None and len(frames) < _MOST_FRAMES:
            frames.append((frame[1], frame[2], frame[3]))
            place = _describe(frames)
    return place


def seconds_of(time: str) -> float:
    """A time in RFC 3339 as seconds since 1970; 0 for any other text."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _describe(frames: list[tuple[str, str, str]]) -> str:
    own = [frame for frame in frames if _CODE.match(frame[0])]
    others = [frame for frame in frames if not any(part in frame[0] for part in _OTHERS)]
    file, number, function = (own or others or frames)[0]
    return one_line(f"{_CODE.sub('', file)}:{number} in {function}", _LONGEST)
