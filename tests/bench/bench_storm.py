"""Measures how much of its time a training makes progress while faults come one after another.

python -m tests.bench.bench_storm [--seconds 600 --every 15]

Two workers and a spare on the local cluster, a step of 50 ms, the state in memory after each step
(keep.py): a rank is killed, a worker deleted, another drained, the warm process killed, the network
cut, the master deleted, and from the beginning. At the end all weights are compared, bit for bit,
with those of a training that nothing has disturbed. Without options it measures two storms: ten
minutes with a fault each 15 seconds, then 35 minutes with one each five minutes.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from itertools import cycle, pairwise
from pathlib import Path

from tests.bench.contestants import bench_namespace
from tests.bench.report import Measured, publish, stage_table
from tests.e2e.cluster import Namespace
from tests.e2e.volumes import claimed_folder
from tests.faults.storm import BETWEEN, FAULTS, begin, finish, stages
from tests.faults.training import Training

# Of a training that nothing disturbs.
SECONDS_OF_STEP = 0.055
# The seconds of a storm, and those between two faults.
STORMS = ((600.0, 15.0), (2100.0, 300.0))


def measure(
    namespace: Namespace, folder: Path, seconds: float, every: float
) -> tuple[dict[str, float], Measured]:
    """The figures of one storm, and the seconds to each stage by kind of fault."""
    training = Training(namespace, folder, print, release=f"every-{every:g}")
    steps, made = int(seconds / SECONDS_OF_STEP), list[tuple[str, float]]()
    begin(training, steps)
    began = training.steps()[0].at
    for fault in cycle(FAULTS):
        due = began + (len(made) + 1) * every
        time.sleep(max(0.0, due - time.time()))
        reached = training.steps()[-1].step
        if reached > steps - 4 * BETWEEN:
            break
        print(f"{time.time() - began:.0f} s, step {reached}: {fault.__doc__}", flush=True)
        made.append((fault.__name__.replace("_", " "), time.time()))
        fault(training)
        found = stages(training, made[-1][1], math.inf)
        print({stage: round(at, 2) for stage, at in found.items()}, flush=True)
    figures = {"every": every, "faults": len(made), **finish(training, began)}
    print(figures, flush=True)
    measured: Measured = {}
    for (kind, at), (_, until) in pairwise([*made, ("end", math.inf)]):
        measured.setdefault(f"every {every:g} s: {kind}", []).append(stages(training, at, until))
    namespace.helm("uninstall", training.release, "--wait")
    return figures, measured


def main() -> None:
    """Measure, and publish the figures in docs/performance.md and build/bench-storm.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, help="of one storm")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two faults")
    options = parser.parse_args()
    storms = [(options.seconds, options.every)] if options.seconds else STORMS
    figures, measured = [], dict[str, list]()
    with bench_namespace() as namespace, tempfile.TemporaryDirectory(prefix="hvd-bench-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        with claimed_folder(namespace, "output", folder):
            for seconds, every in storms:
                one, kinds = measure(namespace, folder, seconds, every)
                figures.append(one)
                measured |= kinds
    lines = [
        f"{one['faults']} faults, one each {one['every']:g} s: {one['effective']:.1%} effective, "
        f"{one['lost']} steps made again, all weights equal.\n"
        for one in figures
    ]
    rows = {
        kind: {
            name: [t[name] for t in turns if name in t]
            for name in dict.fromkeys(n for t in turns for n in t)
        }
        for kind, turns in measured.items()
    }
    text = "\n".join([*lines, stage_table(rows)])
    publish("bench-storm", "performance.md", 1, {"storms": figures, "stages": measured}, text)


if __name__ == "__main__":
    main()
