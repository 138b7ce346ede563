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

from devtools.common.repository import DOCS, ROOT
from devtools.docs_gen.generated import replace_sections
from hvdchart.bench.scaling import mean_and_interval


def machine() -> str:
    """The processor, the number of cores, and the kernel."""
    text = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    model = models[0] if models else platform.machine()
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs, Linux {platform.release()}"


def measured_commit() -> str:
    """The commit that is measured. Pages of docs/, which benchmarks write, do not make it dirty."""
    outputs = []
    for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--", ".", ":!docs")):
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        outputs.append(done.stdout.strip())
    return outputs[0] + ("-dirty" if outputs[1] else "")


def publish_figures(
    name: str, page: str, turns: int, figures: Mapping[str, Any], text: str
) -> bool:
    """Print a text below where its figures are from; write it to docs/, them to build/NAME.json.

    name: the target of make; one with several texts has a word for each of them behind it.
    Returns whether the page was written: not for a tree that differs from its commit.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    measured = measured_commit()
    about = {"machine": machine(), "commit": measured, "time": now, "turns": turns}
    file = figures_file(name)
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**about, **figures}, indent=1) + "\n")
    where = f"{about['machine']}; {turns} turns; {measured}, {now[:10]}."
    print(f"{where}\n\n{text}")
    if measured.endswith("-dirty"):
        print(f"docs/{page} stays as it is: nobody can measure this tree again; commit it first")
        return False
    write_section(name, page, f"{where}\n\n{text}")
    return True


def figures_file(name: str) -> Path:
    return ROOT / "build" / f"{name.replace(' ', '-')}.json"


def write_section(name: str, page: str, text: str) -> None:
    path = DOCS / page
    command = f"make {name.partition(' ')[0]}"
    path.write_text(replace_sections(path, {name: f"\n{text}\n"}, command))


def as_share(figures: Sequence[float]) -> str:
    """The mean with its 95 % interval, in percent."""
    mean, half = mean_and_interval(figures)
    return f"{mean:.1%} ± {half:.1%}"


def judge_figures(figures: Sequence[float], goal: float) -> str:
    """Whether the figures reach a goal, as far as their 95 % interval tells."""
    mean, half = mean_and_interval(figures)
    if mean - half >= goal:
        return "reached"
    return "missed" if mean + half < goal else "not decided"


def as_range(figures: Sequence[float]) -> str:
    """The median, and the range if there are several figures."""
    median = f"{statistics.median(figures):.2f}"
    return median if len(figures) == 1 else f"{median} ({min(figures):.2f} to {max(figures):.2f})"
