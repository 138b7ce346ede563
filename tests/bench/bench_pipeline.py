"""Measures what reading images costs a training: python -m tests.bench.bench_pipeline [TURNS]

Trains MobileNetV2 (96 x 96, batch 8) on one and two ranks, a core each, in the examples' image: on
one batch that stays in memory (synthetic), and on the same JPEG images in TFRecord files, read as a
first script would do it (naive) and with examples/pipeline.py. The sources take turns within one
training; a gap is the part of the synthetic speed that a source loses in the same turn, the mean of
all turns with its 95 % interval. Prints a table, and writes it to docs/pipeline.md. Needs an
otherwise idle machine.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from devtools.images.build import build
from devtools.trials.sandbox import Sandbox, output_of, sandbox
from hvdchart.bench.scaling import mean_and_interval
from tests.bench.figures import print_figures
from tests.bench.report import ROOT, machine, replace_part
from tests.bench.turns import Speeds

SCRIPT = Path(__file__).with_name("pipeline_ranks.py")
PAGE = ROOT / "docs" / "pipeline.md"
STEPS = 8
BASE = "synthetic"
# The ranks bind themselves.
LAUNCH = ("mpirun", "--bind-to", "none", "--oversubscribe", "-np")
ENVIRONMENT = (
    *("PYTHONPATH=/examples", "TF_ENABLE_ONEDNN_OPTS=1"),
    *("TF_NUM_INTRAOP_THREADS=1", "TF_NUM_INTEROP_THREADS=1"),
)


def measure(inside: Sandbox, ranks: int, turns: int) -> Speeds:
    """Images/s of all ranks together by source, a figure for each turn."""
    command = ("python", f"/output/{SCRIPT.name}", "/output/images", str(turns), str(STEPS))
    launch = (*LAUNCH, str(ranks), "env", *ENVIRONMENT)
    done = inside.run(*launch, *command)
    found = re.search(r"^RESULT (\{.*\})$", done.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit(f"no result:\n{output_of(done)}")
    speeds: Speeds = json.loads(found[1])
    print_figures(f"ranks: {ranks}; images/s", speeds)
    return speeds


def gaps(speeds: Speeds, source: str) -> list[float]:
    """The part of the synthetic speed that is lost in each turn."""
    turns = zip(speeds[BASE], speeds[source], strict=True)
    return [1 - speed / synthetic for synthetic, speed in turns]


def table(measured: dict[int, Speeds]) -> str:
    """Speeds and gaps as a table of Markdown."""
    columns = " | ".join(f"{ranks} rank{'s' * (ranks > 1)}, images/s | gap" for ranks in measured)
    lines = [f"| Source | {columns} |", "|---" * (1 + 2 * len(measured)) + "|"]
    for source in measured[1]:
        cells = []
        for speeds in measured.values():
            lost = gaps(speeds, source)
            mean, half = mean_and_interval(lost)
            gap = f"{mean:.1%} ± {half:.1%}"
            cells += [f"{statistics.fmean(speeds[source]):.1f}", "" if source == BASE else gap]
        lines.append(f"| {source} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with (
        tempfile.TemporaryDirectory(prefix="hvd-bench-") as folder,
        sandbox(build("examples"), Path(folder) / "output") as inside,
    ):
        shutil.copy(SCRIPT, inside.folder)
        measured = {ranks: measure(inside, ranks, turns) for ranks in (1, 2)}
    text = f"{machine()}; {turns} turns of {STEPS} steps.\n\n{table(measured)}"
    print(text)
    PAGE.write_text(replace_part(PAGE.read_text(), "bench-pipeline", text))


if __name__ == "__main__":
    main()
