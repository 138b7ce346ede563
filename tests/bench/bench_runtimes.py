"""Builds of TensorFlow, allocators, OpenMP settings, bfloat16: python -m tests.bench.bench_runtimes
[TURNS [BATCH [NAME...]]]

ResNet-50 in training, one process on all of this machine's cores, float32 but where it says
bfloat16. In turns (tests/bench/turns.py), the default image first. Builds the images that are not
there: minutes.
"""

from __future__ import annotations

import os
import sys

from hvdchart.plan.rules import FPMATH, ONEDNN
from hvdchart.tune.grid import Grid, settings_of
from tests.bench.bench_threads import plan_here
from tests.bench.turns import Rival, Work, measure, table

# The plan's own come first.
THREADS = dict(settings_of(plan_here(), Grid())[0])
INTEL = {"tensorflow-package": "intel-tensorflow"}
BFLOAT16 = "mixed_bfloat16"
OLD = "cpu-2.15"
RIVALS = (
    Rival("cpu", environment=THREADS),
    Rival("cpu, threads not set"),
    Rival("cpu, oneDNN on", environment=THREADS | {ONEDNN: "1"}),
    Rival("cpu, oneDNN off", environment=THREADS | {ONEDNN: "0"}),
    Rival("cpu, tuning.bfloat16", environment=THREADS | {ONEDNN: "1", FPMATH: "BF16"}),
    Rival("cpu, bfloat16", environment=THREADS, policy=BFLOAT16),
    Rival(OLD, image=OLD, environment=THREADS),
    Rival(f"{OLD}, oneDNN on", image=OLD, environment=THREADS | {ONEDNN: "1"}),
    Rival(f"{OLD}, jemalloc", image=OLD, overrides={"allocator": "jemalloc"}, environment=THREADS),
    Rival(f"{OLD}, tcmalloc", image=OLD, overrides={"allocator": "tcmalloc"}, environment=THREADS),
    Rival(f"{OLD}, bfloat16", image=OLD, environment=THREADS, policy=BFLOAT16),
    Rival("Intel's build", image=OLD, overrides=INTEL, environment=THREADS),
    *(
        Rival(
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
    names = [rival.name for rival in RIVALS]
    strange = sorted(set(sys.argv[3:]) - set(names))
    if strange:
        sys.exit(f"no such NAME: {', '.join(strange)}; there are {'; '.join(names)}")
    chosen = [rival for rival in RIVALS if rival.name in (sys.argv[3:] or names)]
    speeds = measure(chosen, Work("ResNet50", batch, 3), turns)
    print(f"ResNet-50, batch {batch}, {os.cpu_count()} CPUs; images/s, {turns} turns of 3 steps")
    print(table(speeds, chosen[0].name))


if __name__ == "__main__":
    main()
