"""Measures what reading images costs a training: python -m tests.bench.bench_pipeline [--turns 12]

Trains MobileNetV2 (96 x 96, batch 8) on one and two ranks, a core each, in the examples' image: on
one batch that stays in memory (synthetic), and on the same JPEG images in TFRecord files, read as a
first script would do it (naive) and with examples/pipeline.py. The sources take turns within one
training; a gap is the part of the synthetic speed that a source loses in the same turn, the mean of
all turns with its 95 % interval. Prints a table, and writes it to docs/performance.md. Needs an
otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from pathlib import Path

from devtools.docs_gen.generated import table
from tests.bench import interleaved_training
from tests.bench.report import as_share, publish, verdict
from tests.support.in_image.sandbox import Sandbox, launch_ranks

SCRIPT = Path(__file__).with_name("pipeline_ranks.py")
STEPS = 8
BASE = "synthetic"
OURS = "pipeline.py"
# Images/s by source, a figure for each turn.
Speeds = dict[str, list[float]]
# The part of the synthetic speed that OURS keeps.
GOAL = 0.98


def measure(inside: Sandbox, ranks: int, turns: int) -> Speeds:
    """Images/s of all ranks together by source, a figure for each turn."""
    command = ("python", f"/output/{SCRIPT.name}", "/output/images", str(turns), str(STEPS))
    # The ranks bind themselves.
    process = inside.start(*launch_ranks(ranks), *command, **interleaved_training.ENVIRONMENT)
    assert process.stdout is not None
    speeds: Speeds = {}
    for line in process.stdout:
        if line.startswith("RESULT "):
            speeds = json.loads(line.removeprefix("RESULT "))
        else:
            print(line, end="", flush=True)
    if process.wait() or not speeds:
        raise SystemExit(f"the training on {ranks} ranks ended with {process.returncode}")
    return speeds


def kept(speeds: Speeds, source: str) -> list[float]:
    """The speed of a source in each turn, as a share of the synthetic one."""
    turns = zip(speeds[BASE], speeds[source], strict=True)
    return [speed / synthetic for synthetic, speed in turns]


def speeds_table(measured: Mapping[int, Speeds]) -> str:
    head = ["Source"]
    rows = []
    for ranks in measured:
        head += [f"{ranks} rank{'s' * (ranks > 1)}, images/s", "gap"]
    for source in measured[1]:
        cells = [source]
        for speeds in measured.values():
            gap = as_share([1 - share for share in kept(speeds, source)])
            cells += [f"{statistics.fmean(speeds[source]):.1f}", "" if source == BASE else gap]
        rows.append(cells)
    reached = (
        f"{verdict(kept(speeds, OURS), GOAL)} with {ranks} rank{'s' * (ranks > 1)}"
        for ranks, speeds in measured.items()
    )
    goal = f"A turn is {STEPS} steps. The goal for {OURS}, a gap of at most {1 - GOAL:.0%}: "
    goal += f"{', '.join(reached)}."
    return f"{table(head, rows)}\n\n{goal}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=12)
    turns = parser.parse_args().turns
    with interleaved_training.examples(SCRIPT) as inside:
        measured = {ranks: measure(inside, ranks, turns) for ranks in (1, 2)}
    publish("bench-pipeline", "performance.md", turns, {"speeds": measured}, speeds_table(measured))


if __name__ == "__main__":
    main()
