"""Compares builds of TensorFlow, allocators, OpenMP settings and bfloat16.

python -m tests.bench.bench_runtimes [TURNS [BATCH [NAME...]]]

Trains ResNet-50 in one process on all cores of this machine, in turns (tests/bench/turns.py), the
default image first; in float32 unless the name says bfloat16, and with oneDNN, which the images
turn on. Builds missing images: minutes.
"""

from __future__ import annotations

import os
import sys

from hvdchart.plan.rules import FPMATH, ONEDNN
from hvdchart.tune.grid import Grid, list_settings
from tests.bench.bench_threads import plan_here
from tests.bench.turns import Candidate, Work, measure, print_speeds

# The setting that the plan chooses, which is the first.
THREADS = dict(list_settings(plan_here(), Grid())[0])
INTEL = {"tensorflow-package": "intel-tensorflow"}
BFLOAT16 = "mixed_bfloat16"
OLD = "cpu-2.15"
CANDIDATES = (
    Candidate("cpu", environment=THREADS),
    Candidate("cpu, threads not set"),
    Candidate("cpu, oneDNN off", environment=THREADS | {ONEDNN: "0"}),
    Candidate("cpu, tuning.bfloat16", environment=THREADS | {FPMATH: "BF16"}),
    Candidate("cpu, bfloat16", environment=THREADS, policy=BFLOAT16),
    Candidate(OLD, image=OLD, environment=THREADS),
    Candidate(f"{OLD}, oneDNN off", image=OLD, environment=THREADS | {ONEDNN: "0"}),
    Candidate(
        f"{OLD}, jemalloc", image=OLD, overrides={"allocator": "jemalloc"}, environment=THREADS
    ),
    Candidate(
        f"{OLD}, tcmalloc", image=OLD, overrides={"allocator": "tcmalloc"}, environment=THREADS
    ),
    Candidate(f"{OLD}, bfloat16", image=OLD, environment=THREADS, policy=BFLOAT16),
    Candidate("Intel's build", image=OLD, overrides=INTEL, environment=THREADS),
    *(
        Candidate(
            f"Intel's build, KMP_BLOCKTIME={milliseconds}",
            image=OLD,
            overrides=INTEL,
            environment=THREADS | {"KMP_BLOCKTIME": milliseconds},
        )
        for milliseconds in ("0", "1")
    ),
)


def main() -> None:
    """Measure and print."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    names = [each.name for each in CANDIDATES]
    unknown = sorted(set(sys.argv[3:]) - set(names))
    if unknown:
        sys.exit(f"unknown NAME {', '.join(unknown)}; use {'; '.join(names)}")
    chosen = [each for each in CANDIDATES if each.name in (sys.argv[3:] or names)]
    speeds = measure(chosen, Work("ResNet50", batch, 3), turns)
    title = f"ResNet-50, batch {batch}, {os.cpu_count()} CPUs, {turns} turns of 3 steps"
    print_speeds(title, speeds)


if __name__ == "__main__":
    main()
