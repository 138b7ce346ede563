"""Measures `hvdchart render` and `plan`, in a new process each time.

The aims, which nothing checks: 0.3 s for an ordinary spec, 1 s for 1,000 nodes in 50 groups.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.figures import print_figures

ROOT = Path(__file__).parents[2]
RUNS = 10


def large_spec(groups: int = 50, nodes: int = 1000) -> str:
    """A spec of many different groups."""
    lines = ["apiVersion: hvdchart/v1", "name: large", "nodes:"]
    for index in range(groups):
        lines += [
            f"  - name: group-{index}",
            f"    count: {nodes // groups}",
            "    sockets: 2",
            f"    coresPerSocket: {16 + index}",
            "    threadsPerCore: 2",
            f"    memory: {128 + index}Gi",
            f"    nodeSelector: {{pool: pool-{index}}}",
            "    tolerations: [{key: training, operator: Exists, effect: NoSchedule}]",
        ]
    return "\n".join([*lines, "train: {command: [python, train.py]}", ""])


def times(*arguments: str) -> tuple[list[float], float]:
    """The seconds of each run of the command, and the mean CPU seconds of a run.

    On a busy machine, compare the CPU time.
    """
    walls = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(RUNS):
        start = time.perf_counter()
        command = [sys.executable, "-m", "hvdchart", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        walls.append(time.perf_counter() - start)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return walls, cpu / RUNS


def main() -> None:
    """Measure and print."""
    seconds, cpu_seconds = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.spec.yaml"
        large.write_text(large_spec())
        cases = {
            "render values/xeon-4.spec.yaml": ("render", "values/xeon-4.spec.yaml"),
            "render, 1,000 nodes in 50 groups": ("render", str(large)),
            "plan values/xeon-4.spec.yaml": ("plan", "values/xeon-4.spec.yaml"),
            "plan -o json, 1,000 nodes in 50 groups": ("plan", "-o", "json", str(large)),
        }
        for name, arguments in cases.items():
            seconds[name], cpu = times(*arguments)
            cpu_seconds[name] = f"{cpu:.2f}"
    print_figures(f"Seconds of {RUNS} runs", seconds, cpu=cpu_seconds)


if __name__ == "__main__":
    main()
