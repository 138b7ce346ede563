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

from devtools.docs_gen.generated import table
from hvdchart.bench.scaling import mean_and_interval

ROOT = Path(__file__).resolve().parents[2]
Rows = Mapping[str, Sequence[float]]


def machine() -> str:
    """The processor, the number of cores, and the kernel."""
    text = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    model = models[0] if models else platform.machine()
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs, Linux {platform.release()}"


def origin(turns: int) -> dict[str, Any]:
    """Where figures come from: the machine, the commit, the time and the number of turns."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {
        "machine": machine(),
        "commit": commit.stdout.strip(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "turns": turns,
    }


def as_line(about: Mapping[str, Any]) -> str:
    """An origin as a sentence of a page."""
    turns, day = about["turns"], about["time"][:10]
    return f"{about['machine']}; {turns} turns; {about['commit']}, {day}."


def write_result(name: str, document: Mapping[str, Any]) -> None:
    """Write build/NAME.json."""
    file = ROOT / "build" / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(document, indent=1) + "\n")


def write_part(page: str, name: str, content: str) -> None:
    """Replace the part of a page of docs/ that the comments name."""
    path, begin, end = ROOT / "docs" / page, f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = path.read_text()
    if not 0 <= text.find(begin) < text.find(end):
        raise ValueError(f"{page} has no part between {begin} and {end}")
    before, _, rest = text.partition(begin)
    path.write_text(f"{before}{begin}\n\n{content}\n\n{end}{rest.partition(end)[2]}")


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


def write_report(
    name: str, titles: Mapping[str, Rows], stages: Mapping[str, Rows], turns: int
) -> None:
    """Print tables of seconds, write them to docs/performance.md, and write build/NAME.json: totals
    by title, and stages by row.
    """
    from_where = origin(turns)
    write_result(name, {**from_where, "seconds": titles, "stages": stages})
    tables = [as_markdown(*item) for item in titles.items()]
    text = "\n\n".join([as_line(from_where), *tables, stage_table(stages)])
    print(text)
    write_part("performance.md", name, text)


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
