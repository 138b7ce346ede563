"""Measures how much of its time a training makes progress while faults come one after another.

python -m tests.bench.bench_storm [--seconds 600] [--every 15]

Two workers and a spare on the local cluster, a step of 50 ms, the state in memory after each step
(keep.py): a rank is killed, a worker deleted, another drained, the warm process killed, the network
cut, the master deleted, and from the beginning. At the end all weights are compared, bit for bit,
with those of a training that nothing has disturbed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import cycle
from pathlib import Path

from tests.bench.contestants import bench_namespace
from tests.e2e.volumes import claimed_folder
from tests.faults.storm import BETWEEN, FAULTS, begin, finish
from tests.faults.training import Training

# Of a training that nothing disturbs.
SECONDS_OF_STEP = 0.055


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two faults")
    options = parser.parse_args()
    steps, faults = int(options.seconds / SECONDS_OF_STEP), 0
    with bench_namespace() as namespace, tempfile.TemporaryDirectory(prefix="hvd-bench-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        with claimed_folder(namespace, "output", folder):
            training = Training(namespace, folder, print)
            begin(training, steps)
            began = training.steps()[0].at
            for fault in cycle(FAULTS):
                due = began + (faults + 1) * options.every
                time.sleep(max(0.0, due - time.time()))
                if training.steps()[-1].step > steps - 4 * BETWEEN:
                    break
                fault(training)
                faults += 1
                print(f"{time.time() - began:.0f} s: {fault.__doc__}", flush=True)
            print({"faults": faults, **finish(training, began)}, flush=True)


if __name__ == "__main__":
    main()
