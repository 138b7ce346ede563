"""Measures how long a line of a run's log takes to be printed by `hvdchart logs`.

python -m tests.bench.bench_logs [LINES]

From when the API server has the line to when a reader of the command's output has it; the aim,
which nothing checks, is 0.5 s. The API server is a small one on this machine: what the kubelet and
a network take comes on top.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.report import print_figures
from tests.fakes.cluster import FakeCluster, running, write_kubeconfig
from tests.unit.hvdchart.runs import JOB, MASTER, STATEFUL_SET, job

ROOT = Path(__file__).parents[2]
LINES = 100
PAUSE = 0.02


def measure(number: int) -> list[float]:
    """The seconds of each line."""
    cluster = FakeCluster()
    with tempfile.TemporaryDirectory() as name, running(cluster) as address:
        kubeconfig = Path(name) / "kubeconfig"
        write_kubeconfig(kubeconfig, address)
        cluster.put("jobs", job())
        cluster.put("statefulsets", STATEFUL_SET)
        cluster.put("pods", MASTER)
        cluster.log(f"{JOB}-x", "begins")
        process = subprocess.Popen(
            [sys.executable, "-m", "hvdchart", "logs", "hvd"],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)}, cwd=ROOT,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            while "begins" not in process.stdout.readline():
                assert process.poll() is None, "the command has ended"
            seconds = []
            for index in range(number):
                time.sleep(PAUSE)
                start = time.perf_counter()
                cluster.log(f"{JOB}-x", f"line {index}")
                while f"line {index}" not in process.stdout.readline():
                    assert process.poll() is None, "the command has ended"
                seconds.append(time.perf_counter() - start)
            return seconds
        finally:
            process.kill()
            process.communicate()


def main() -> None:
    """Measure and print."""
    number = int(sys.argv[1]) if sys.argv[1:] else LINES
    milliseconds = [1000 * seconds for seconds in measure(number)]
    print_figures("Milliseconds until a line is printed", {f"{number} lines": milliseconds})


if __name__ == "__main__":
    main()
