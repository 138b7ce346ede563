"""Measures the chart: lines, objects and findings of a scanner. bench_render has the seconds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.chart.cases import ready_cases
from tests.chart.render import CHART, render
from tests.chart.scan import findings
from tests.chart.test_scanner import explained

PARTS = {
    "values.yaml": "values.yaml",
    "values.schema.json": "values.schema.json",
    "values.source.yaml, the source of both": "values.source.yaml",
    "templates": "templates/**/*.*",
    "files that run in the pods": "files/*.*",
}


def lines(pattern: str) -> int:
    """The number of lines of the chart's files that match."""
    files = [file for file in CHART.glob(pattern) if "__pycache__" not in file.parts]
    return sum(len(file.read_text().splitlines()) for file in files)


def main() -> None:
    """Measure and print."""
    table = Table("what", "figure", title=f"charts/{Path(CHART).name}")
    for name, pattern in PARTS.items():
        table.add_row(f"lines of {name}", str(lines(pattern)))
    made = Counter(manifest["kind"] for manifest in render())
    table.add_row("objects for the default values", f"{made.total()}: {', '.join(sorted(made))}")
    for case, values in ready_cases().items():
        reported = findings(render(values))
        left = [finding for finding in reported if finding not in explained()]
        critical = sum(finding.critical for finding in reported)
        counts = f"{len(reported)} findings, {critical} critical, {len(left)} unexplained"
        table.add_row(f"kube-score, {case}", counts)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
