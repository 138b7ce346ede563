"""Measures the chart: lines, objects, seconds to render and findings of a scanner.

python -m tests.bench.bench_chart [RUNS]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.chart.cases import ready_cases
from tests.chart.render import CHART, helm_template, render
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


def seconds(helm: str, runs: int) -> list[float]:
    """The seconds of each `helm template` with the default values."""
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        done = helm_template(helm=helm)
        taken.append(time.perf_counter() - start)
        assert done.returncode == 0, done.stderr
    return taken


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if sys.argv[1:] else 10
    table = Table("what", "figure", title=f"charts/{Path(CHART).name}")
    for name, pattern in PARTS.items():
        table.add_row(f"lines of {name}", str(lines(pattern)))
    for helm in ("helm3", "helm4"):
        taken = seconds(helm, runs)
        best, middle = min(taken), statistics.median(taken)
        table.add_row(
            f"`helm template`, {helm}, s", f"best {best:.2f}, median of {runs} {middle:.2f}"
        )
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
