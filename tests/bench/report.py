"""Tables of benchmarks: printed, in a file of build/ for programs, and in a part of a page."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from devtools.docs_gen.generated import replace_sections, table
from hvdchart.bench.scaling import mean_and_interval

ROOT = Path(__file__).resolve().parents[2]
Rows = Mapping[str, Sequence[float]]
# The seconds to each stage, of each turn, by the name of what was measured.
Measured = dict[str, list[Mapping[str, float]]]


def machine() -> str:
    """The processor, the number of cores, and the kernel."""
    text = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    model = models[0] if models else platform.machine()
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs, Linux {platform.release()}"


def publish(name: str, page: str, turns: int, figures: Mapping[str, Any], text: str) -> None:
    """Print a text after a line of where its figures come from, write both to the section of a page
    of docs/, and the figures to build/NAME.json.
    """
    describe = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"machine": machine(), "commit": commit.stdout.strip(), "time": now, "turns": turns}
    file = ROOT / "build" / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**about, **figures}, indent=1) + "\n")
    where = f"{about['machine']}; {turns} turns; {about['commit']}, {now[:10]}."
    print(f"{where}\n\n{text}")
    path = ROOT / "docs" / page
    sections = {name: f"\n{where}\n\n{text}\n"}
    path.write_text(replace_sections(path, sections, f"make {name}"))


def as_share(figures: Sequence[float]) -> str:
    """The mean with its 95 % interval, in percent."""
    mean, half = mean_and_interval(figures)
    return f"{mean:.1%} ± {half:.1%}"


def verdict(figures: Sequence[float], goal: float) -> str:
    """Whether the figures reach a goal from below, as far as their 95 % interval tells."""
    mean, half = mean_and_interval(figures)
    if mean - half >= goal:
        return "reached"
    return "missed" if mean + half < goal else "within the interval"


def add_turn(measured: Measured, name: str, seconds: Mapping[str, float]) -> None:
    """Print the seconds to each stage, and add them to those of earlier turns."""
    print(name, {stage: round(value, 2) for stage, value in seconds.items()}, flush=True)
    measured.setdefault(name, []).append(seconds)


def write_report(name: str, titles: Mapping[str, Rows], measured: Measured, turns: int) -> None:
    """Publish tables of seconds in docs/performance.md: totals by title, and to each stage."""
    stages = {
        row: {
            stage: [seconds[stage] for seconds in each if stage in seconds]
            for stage in dict.fromkeys(stage for seconds in each for stage in seconds)
        }
        for row, each in measured.items()
    }
    tables = [*(as_markdown(*item) for item in titles.items()), stage_table(stages)]
    figures = {"seconds": titles, "stages": stages}
    publish(name, "performance.md", turns, figures, "\n\n".join(tables))


def as_markdown(title: str, rows: Rows) -> str:
    """A table with the median and the range of each row."""
    cells = (
        (name, f"{statistics.median(row):.2f}", f"{min(row):.2f} to {max(row):.2f}")
        for name, row in rows.items()
    )
    return table((title, "median", "range"), cells)


def stage_table(stages: Mapping[str, Rows]) -> str:
    """A table with the median time of each stage, in the order of the first time of any."""
    medians = {
        name: {stage: statistics.median(times) for stage, times in rows.items()}
        for name, rows in stages.items()
    }
    first: dict[str, float] = {}
    for times in medians.values():
        for stage, median in times.items():
            first[stage] = min(median, first.get(stage, median))
    order = sorted(first, key=lambda stage: first[stage])
    cells = (
        (name, *(f"{times[stage]:.2f}" if stage in times else "" for stage in order))
        for name, times in medians.items()
    )
    return table(("Seconds to each stage, median", *order), cells)
