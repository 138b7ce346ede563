"""A timeline of Horovod, as its file has it."""

from __future__ import annotations

import json
from typing import Any


def negotiation(tensor: int, *ready: tuple[int, int]) -> list[dict[str, Any]]:
    """One tensor's events, as Horovod 0.28 writes them: ready are (microseconds, rank)."""
    return [
        {"name": "process_name", "ph": "M", "pid": tensor, "args": {"name": f"grad/{tensor}"}},
        {"name": "process_sort_index", "ph": "M", "pid": tensor, "args": {"sort_index": tensor}},
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": ready[0][0], "pid": tensor},
        *({"ph": "X", "name": str(r), "ts": at, "pid": tensor, "dur": 0} for at, r in ready),
        {"ph": "E", "ts": ready[-1][0], "pid": tensor},
        {"ph": "B", "name": "ALLREDUCE", "ts": ready[-1][0] + 1, "pid": tensor},
        {"ph": "B", "name": "MPI_ALLREDUCE", "ts": ready[-1][0] + 2, "pid": tensor},
        {"ph": "E", "ts": ready[-1][0] + 9, "pid": tensor},
        {"ph": "E", "ts": ready[-1][0] + 9, "pid": tensor},
    ]


EVENTS = [
    *negotiation(0, (1_000_000, 0), (3_000_000, 1)),
    *negotiation(1, (4_000_000, 1), (4_500_000, 0)),
]
# As the file is written: a line an event, and no end.
OPEN = "[\n" + "".join(f"{json.dumps(event)},\n" for event in EVENTS)
