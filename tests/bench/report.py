"""What benchmarks leave: a table, a file for programs in build/, and a plot in docs/plots/."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from tests.bench.figures import print_figures

ROOT = Path(__file__).resolve().parents[2]
Rows = Mapping[str, Sequence[float]]
# Of a plot, in pixels.
WIDTH, NAMES, ROW, BAR, MARGIN = 860, 330, 26, 14, 40


def machine() -> str:
    """The processor, the number of cores, and the kernel."""
    text = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    model = models[0] if models else platform.machine()
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs, Linux {platform.release()}"


def write_report(name: str, titles: Mapping[str, Rows], **settings: object) -> None:
    """Print a table of seconds for each title, and write build/NAME.json and docs/plots/NAME.svg.

    The plot has the first title only.
    """
    for title, rows in titles.items():
        print_figures(title, rows)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    document = {
        "machine": machine(),
        "commit": commit.stdout.strip(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **settings,
        "seconds": titles,
    }
    file = ROOT / "build" / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(document, indent=1) + "\n")
    title, rows = next(iter(titles.items()))
    picture = ROOT / "docs" / "plots" / f"{name}.svg"
    picture.parent.mkdir(exist_ok=True)
    picture.write_text(plot(title, rows))
    print(f"written: {file}, {picture}")


def plot(title: str, rows: Rows) -> str:
    """A bar for each row's median and a line from its lowest to its highest figure, as SVG."""
    full = max(figure for row in rows.values() for figure in row)
    scale = (WIDTH - NAMES - MARGIN) / full
    height = MARGIN + ROW * len(rows) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="22" font-weight="bold">{escape(title)}</text>',
    ]
    for number, (name, row) in enumerate(rows.items()):
        top = MARGIN + number * ROW
        middle, median = top + BAR / 2, statistics.median(row)
        low, high = (NAMES + scale * figure for figure in (min(row), max(row)))
        parts += [
            f'<text x="{NAMES - 8}" y="{top + 12}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{NAMES}" y="{top}" width="{scale * median:.1f}" height="{BAR}"'
            f' fill="{"#2b6cb0" if name.startswith("this chart") else "#a0aec0"}"/>',
            f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="black"/>',
            f'<text x="{NAMES + 4}" y="{top + 12}" fill="white">{median:.1f}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
