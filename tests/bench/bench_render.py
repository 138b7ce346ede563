"""How long `hvdchart render` and `plan` take, cold: a new process each time.

Aims: 0.3 s for an ordinary spec, 1 s for 1,000 nodes in 50 groups. Figures, not verdicts.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
RUNS = 10


def large_spec(groups: int = 50, nodes: int = 1000) -> str:
    """A spec of many groups, each unlike the others."""
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
    """Seconds that each run of the command took, and CPU seconds of a run on average.

    On a busy machine the CPU time is the one to compare.
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
    table = Table("command", "best s", "median s", "worst s", "CPU s", title=f"{RUNS} cold runs")
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
            walls, cpu = times(*arguments)
            figures = (min(walls), statistics.median(walls), max(walls), cpu)
            table.add_row(name, *(f"{figure:.2f}" for figure in figures))
    Console().print(table)


if __name__ == "__main__":
    main()
