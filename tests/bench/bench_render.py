"""Measures `hvdchart render`, `hvdchart plan` and `helm template`, in a new process each time.

The aims, which nothing checks: 0.3 s for an ordinary spec, 1 s for 1,000 nodes in 50 groups; 0.2 s
for `helm template` with the default values, 1 s with 50 groups.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from devtools.toolchain.tools import tool
from tests.bench.report import print_figures

ROOT = Path(__file__).parents[2]
RUNS = 10
HVDCHART = (sys.executable, "-m", "hvdchart")


def large_spec(groups: int = 50, nodes: int = 1000) -> str:
    """A spec of many different groups."""
    lines = ["apiVersion: hvdchart/v1", "name: large", "image: {repository: a}", "nodes:"]
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


def large_values(groups: int) -> str:
    """The chart's values with many worker groups."""
    group = {"number": 20, "slots": 2, "nodeSelector": {"pool": "x"}}
    named = [{"name": f"group-{index}", **group} for index in range(groups)]
    return json.dumps({"image": {"repository": "registry.example/team/app"}, "workerGroups": named})


def times(*command: str) -> tuple[list[float], float]:
    """The seconds of each run of the command, and the mean CPU seconds of a run.

    On a busy machine, compare the CPU time.
    """
    walls = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(RUNS):
        start = time.perf_counter()
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
        cases: dict[str, tuple[str, ...]] = {
            "render values/xeon-4.spec.yaml": (*HVDCHART, "render", "values/xeon-4.spec.yaml"),
            "render, 1,000 nodes in 50 groups": (*HVDCHART, "render", str(large)),
            "plan values/xeon-4.spec.yaml": (*HVDCHART, "plan", "values/xeon-4.spec.yaml"),
            "plan -o json, 1,000 nodes in 50 groups": (*HVDCHART, "plan", "-o", "json", str(large)),
        }
        for groups in (0, 30, 50):
            values = Path(folder) / f"{groups}.yaml"
            values.write_text(large_values(groups))
            for helm in ("helm3", "helm4"):
                template = (str(tool(helm)), "template", "hvd", "charts/horovod", "--values")
                cases[f"{helm} template, {groups or 'no'} groups"] = (*template, str(values))
        for name, arguments in cases.items():
            seconds[name], cpu = times(*arguments)
            cpu_seconds[name] = f"{cpu:.2f}"
    print_figures(f"Seconds of {RUNS} runs", seconds, cpu=cpu_seconds)


if __name__ == "__main__":
    main()
