"""The waits in Horovod's timeline."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hvdchart.errors import FileError
from hvdchart.run.timeline import Wait, read_waits, waits_report


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


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(EVENTS),
        OPEN,
        OPEN.rstrip().rstrip(","),
        f'{OPEN}{{"ph": "B", "na',
        f"{OPEN}{{}}]",
    ],
    ids=["closed", "open", "no comma", "cut", "ended"],
)
def test_waits_are_those_for_the_last_rank(text: str) -> None:
    assert read_waits(text) == [
        Wait("grad/0", "allreduce", 1.0, 2.0, 1), Wait("grad/1", "allreduce", 4.0, 0.5, 0),
    ]  # fmt: skip


def test_the_report_names_the_ranks_and_the_largest_waits() -> None:
    assert waits_report(read_waits(OPEN)).splitlines() == [
        "2 operations; ranks waited 2.50 s for the last one of each",
        "  rank 1 was the last 1 times: 2.00 s",
        "  rank 0 was the last 1 times: 0.50 s",
        "largest waits:",
        "  2.000 s for rank 1 at 1.00 s: allreduce of grad/0",
        "  0.500 s for rank 0 at 4.00 s: allreduce of grad/1",
    ]


def test_the_report_names_the_five_worst() -> None:
    many = [each for n in range(1, 7) for each in negotiation(n, (0, 0), (n * 1_000_000, n))]
    report = waits_report(read_waits(json.dumps(many))).splitlines()
    slowest = [f"  rank {n} was the last 1 times: {n}.00 s" for n in (6, 5, 4, 3, 2)]
    largest = [
        f"  {n}.000 s for rank {n} at 0.00 s: allreduce of grad/{n}" for n in (6, 5, 4, 3, 2)
    ]
    assert report[1:] == [*slowest, "largest waits:", *largest]


def test_a_timeline_without_waits_is_no_error() -> None:
    assert waits_report(read_waits("[\n")).startswith("0 operations")
    assert read_waits(json.dumps(negotiation(0, (1, 0)))) == []


@pytest.mark.parametrize("text", ["", "no timeline", '{"a": 1}', "step,loss\n1,2\n"])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(FileError, match="is not one of Horovod"):
        read_waits(text)
