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
import tempfile
import time
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from tests.bench.contestants import bench_namespace
from tests.bench.report import Measured, add_turn, write_report
from tests.e2e.cluster import Namespace
from tests.e2e.volumes import claimed_folder
from tests.faults.storm import FAULTS, begin, finish, stages
from tests.faults.training import Training

# Without faults at the end: a new master takes at least ten.
LAST_SECONDS = 30.0
# Of a training that nothing disturbs.
SECONDS_OF_STEP = 0.055
# The seconds of a storm, and those between two faults.
STORMS = ((600.0, 15.0), (2100.0, 300.0))


class Storm(NamedTuple):
    """What a storm has cost, all weights being equal, and the seconds to each stage by fault."""

    name: str
    figures: dict[str, float]
    measured: Measured


def measure(namespace: Namespace, folder: Path, seconds: float, every: float) -> Storm:
    """Measure one storm."""
    training = Training(namespace, folder, print, release=f"every-{every:g}")
    steps, faults, measured = int(seconds / SECONDS_OF_STEP), 0, Measured()
    begin(training, steps)
    began = training.steps()[0].at
    for fault in cycle(FAULTS):
        time.sleep(max(0.0, began + (faults + 1) * every - time.time()))
        at, reached = time.time(), training.steps()[-1].step
        if reached > steps - LAST_SECONDS / SECONDS_OF_STEP:
            break
        print(f"{at - began:.0f} s, step {reached}: {fault.__doc__}", flush=True)
        fault(training)
        faults += 1
        add_turn(measured, f"each {every:g} s: {fault.__name__}", stages(training, at))
    storm = Storm(f"{faults} faults, one each {every:g} s", finish(training, began), measured)
    print(storm.name, storm.figures, flush=True)
    namespace.helm("uninstall", training.release, "--wait")
    return storm


def main() -> None:
    """Measure, and publish the figures in docs/performance.md and build/bench-storm.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, help="of one storm")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two faults")
    options = parser.parse_args()
    chosen = [(options.seconds, options.every)] if options.seconds else STORMS
    with bench_namespace() as namespace, tempfile.TemporaryDirectory(prefix="hvd-bench-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        with claimed_folder(namespace, "output", folder):
            storms = [measure(namespace, folder, *one) for one in chosen]
    titles = {
        "Effective training time, %": {
            storm.name: [100 * storm.figures["effective"]] for storm in storms
        },
        "Steps made again": {storm.name: [storm.figures["lost"]] for storm in storms},
    }
    measured = {kind: turns for storm in storms for kind, turns in storm.measured.items()}
    write_report("bench-storm", titles, measured, 1)


if __name__ == "__main__":
    main()
