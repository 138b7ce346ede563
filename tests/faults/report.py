"""The table of faults at the end of a test run, and the same as JSON."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from devtools.common.repository import ROOT

RESULTS = ROOT / "build" / "faults.json"
PROPERTY = "fault"
# The figures of a row, and their headings.
COLUMNS = {
    "fault": "Fault",
    "next": "s to the next step",
    "lost": "steps lost",
    "end": "s to the end",
    "reason": "the reason that is told",
}
Row = dict[str, Any]


def measured_rows(reports: list[Any]) -> list[Row]:
    """What tests reported of the faults that they made, each as often as it was measured."""
    return [
        {**value, "test": report.nodeid}
        for report in reports
        for name, value in report.user_properties
        if name == PROPERTY and report.when == "call"
    ]


def publish_table(measured: list[Row]) -> None:
    """Print the table and write the JSON."""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(measured, indent=1) + "\n")
    table = Table(*COLUMNS.values(), title=f"Faults, also in {RESULTS}")
    for row in measured:
        table.add_row(*(str(row.get(key, "")) for key in COLUMNS))
    Console(width=150).print(table)
