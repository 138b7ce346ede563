"""Compute from Horovod's timeline how long ranks waited for one another, and for which. Pure.

The format is Chrome's trace events. For each tensor, a process of the trace has a span
NEGOTIATE_.... The span begins when the first rank has the tensor, and ends when all have it. Within
the span, an event named after each rank marks the time when this rank had it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hvd_pods.shared.untrusted import MOST_COUNTED, parse_count
from hvdchart.errors import FileError

_NEGOTIATE = "NEGOTIATE_"
# The number of largest waits in a report.
_MAX_REPORTED_WAITS = 5
# The maximum number of characters of a tensor's name.
_MAX_NAME_CHARACTERS = 60


@dataclass(frozen=True)
class Wait:
    """The time from the first to the last rank at one tensor.

    `at` is when the first rank had the tensor, in seconds since the start. `seconds` is the time
    until the last one, `rank`, had it.
    """

    tensor: str
    operation: str
    at: float
    seconds: float
    rank: int


def read_waits(text: str) -> list[Wait]:
    """Return the waits of a timeline, in order. Raises FileError for any other file."""
    try:
        return list(_waits(read_events(text)))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FileError(f"the timeline is not one of Horovod: {error!r}") from error


def waits_report(waits: list[Wait]) -> list[str]:
    """Explain how long ranks waited in total, for which ranks, and for which operations most."""
    total = sum(wait.seconds for wait in waits)
    lines = [f"{len(waits)} operations; ranks waited {total:.2f} s for the last rank of each"]
    of_rank: dict[int, list[float]] = {}
    for wait in waits:
        of_rank.setdefault(wait.rank, []).append(wait.seconds)
    slowest = sorted(of_rank.items(), key=lambda item: -sum(item[1]))
    lines += [
        f"  rank {rank} was last {len(seconds)} times; others waited {sum(seconds):.2f} s for it"
        for rank, seconds in slowest[:_MAX_REPORTED_WAITS]
    ]
    largest = sorted(waits, key=lambda wait: -wait.seconds)[:_MAX_REPORTED_WAITS]
    if largest:
        lines.append("largest waits:")
    lines += [
        f"  {wait.seconds:.3f} s for rank {wait.rank} at {wait.at:.2f} s: {wait.operation} of "
        f"{short_name(wait.tensor)}"
        for wait in largest
    ]
    return lines


def short_name(tensor: str) -> str:
    """Return the name of a tensor; of a long name, the parts that distinguish its layer.

    Frameworks join the names of all layers above: only the first and the last ones are shown.
    """
    if len(tensor) <= _MAX_NAME_CHARACTERS:
        return tensor
    parts = re.split(r"([/.])", tensor)
    first = parts[0][: _MAX_NAME_CHARACTERS // 3]
    last = ""
    for part in reversed(parts[1:]):
        if len(first) + len(last) + len(part) + 3 > _MAX_NAME_CHARACTERS:
            break
        last = part + last
    return f"{first}...{last or tensor[-_MAX_NAME_CHARACTERS // 2 :]}"


def read_events(text: str) -> list[dict[str, Any]]:
    """Return the events of a file that may be incomplete: an active run has not closed it.

    Raises FileError for a file that is no list of trace events.
    """
    # The last line may be incomplete.
    for part in (text, text.strip().rpartition("\n")[0]):
        for end in ("", "]", "}]"):
            try:
                events: Any = json.loads(part.strip().rstrip(",") + end)
            except (ValueError, RecursionError):
                continue
            if isinstance(events, list):
                return [event for event in events if isinstance(event, dict)]
    raise FileError("the timeline is not one of Horovod: it is not a list of trace events")


def _waits(events: list[dict[str, Any]]) -> Iterator[Wait]:
    names: dict[Any, str] = {}
    # By process of the trace: the operation in negotiation, and when each rank was ready.
    open_spans: dict[Any, tuple[str, list[tuple[float, int]]]] = {}
    for event in events:
        tensor = event.get("pid")
        kind = event.get("ph")
        name = str(event.get("name", ""))
        if kind == "M" and name == "process_name":
            names[tensor] = str(event.get("args", {}).get("name", ""))
        elif kind == "B" and name.startswith(_NEGOTIATE):
            open_spans[tensor] = (name.removeprefix(_NEGOTIATE).lower(), [])
        elif tensor in open_spans and kind == "X" and parse_count(name, MOST_COUNTED) is not None:
            open_spans[tensor][1].append((float(event["ts"]) / 1e6, int(name)))
        elif tensor in open_spans and kind == "E":
            operation, ready = open_spans.pop(tensor)
            if len(ready) > 1:
                first, _ = min(ready)
                last, rank = max(ready)
                yield Wait(names.get(tensor, ""), operation, first, last - first, rank)
