"""Measures the commands that people type most, in a new process each time.

python -m tests.bench.bench_command

Run it in a worktree of another revision to compare the two. The aims, which nothing
checks: 0.15 s for --help and --version, 0.3 s for render and 1 s for 1,000 nodes in 50 groups,
0.5 s for status; 0.2 s for `helm template` and 1 s with 50 groups; 0.5 s from when the API server
has a line of a log to when `hvdchart logs` has printed it. The API server is a small one on this
machine. On a busy machine, compare the CPU seconds.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from devtools.toolchain.tools import tool
from tests.bench.report import as_markdown
from tests.support.fakes.cluster import FakeCluster, write_kubeconfig
from tests.unit.hvdchart.objects import JOB, MASTER, STATEFUL_SET, WORKERS, job

ROOT = Path(__file__).parents[2]
RUNS = 10
LINES = 100
HVDCHART = (sys.executable, "-m", "hvdchart")
COMMANDS = (
    ("--help",),
    ("--version",),
    ("render", "values/xeon-4.spec.yaml"),
    ("plan", "values/xeon-4.spec.yaml"),
    ("status", "hvd"),
    ("list",),
)


def large_spec(groups: int = 50, nodes: int = 1000) -> str:
    described = [
        {
            "name": f"group-{index}",
            "count": nodes // groups,
            "sockets": 2,
            "coresPerSocket": 16 + index,
            "threadsPerCore": 2,
            "memory": f"{128 + index}Gi",
            "nodeSelector": {"pool": f"pool-{index}"},
            "tolerations": [{"key": "training", "operator": "Exists", "effect": "NoSchedule"}],
        }
        for index in range(groups)
    ]
    spec = {"apiVersion": "hvdchart/v1", "name": "large", "image": {"repository": "a"}}
    return json.dumps({**spec, "nodes": described, "train": {"command": ["python", "train.py"]}})


def large_values(groups: int) -> str:
    group = {"number": 20, "slots": 2, "nodeSelector": {"pool": "x"}}
    named = [{"name": f"group-{index}", **group} for index in range(groups)]
    return json.dumps({"image": {"repository": "registry.example/team/app"}, "workerGroups": named})


def times(command: Sequence[str], environment: dict[str, str]) -> tuple[list[float], list[float]]:
    """The seconds of each run, and the mean CPU seconds."""
    environment = {**os.environ, **environment}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run() -> float:
        start = time.perf_counter()
        subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True)
        return time.perf_counter() - start

    # Compiles the modules.
    run()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    walls = [run() for _ in range(RUNS)]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return walls, [cpu / RUNS]


def time_lines(cluster: FakeCluster, environment: dict[str, str]) -> list[float]:
    """The milliseconds until `hvdchart logs` has printed a line that the API server has got."""
    process = subprocess.Popen(
        [*HVDCHART, "logs", "hvd"],
        env={**os.environ, **environment},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        milliseconds = []
        for index in range(LINES + 1):
            time.sleep(0.02)
            start = time.perf_counter()
            cluster.log(f"{JOB}-x", f"line {index}.")
            while f"line {index}." not in process.stdout.readline():
                assert process.poll() is None, "the command has ended"
            milliseconds.append(1000 * (time.perf_counter() - start))
        # The first line waits for the start of the command.
        return milliseconds[1:]
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    seconds = {}
    cpu_seconds = {}
    cluster = FakeCluster()
    with tempfile.TemporaryDirectory() as name, cluster.serve() as address:
        folder = Path(name)
        cluster.put("jobs", job())
        cluster.put("statefulsets", STATEFUL_SET)
        cluster.put("pods", MASTER, *WORKERS)
        write_kubeconfig(folder / "kubeconfig", address)
        environment = {"KUBECONFIG": f"{folder}/kubeconfig", "PYTHONPYCACHEPREFIX": f"{folder}/pyc"}
        large = folder / "large.spec.yaml"
        large.write_text(large_spec())
        render = (*HVDCHART, "render", str(large))
        cases = {" ".join(arguments): (*HVDCHART, *arguments) for arguments in COMMANDS}
        cases["render, 1,000 nodes in 50 groups"] = render
        for groups in (0, 30, 50):
            values = folder / f"{groups}.yaml"
            values.write_text(large_values(groups))
            for helm in ("helm3", "helm4"):
                template = (str(tool(helm)), "template", "hvd", "charts/horovod", "--values")
                cases[f"{helm} template, {groups} groups"] = (*template, str(values))
        for row, command in cases.items():
            seconds[row], cpu_seconds[row] = times(command, environment)
        lines = time_lines(cluster, environment)
    print(as_markdown(f"Seconds of {RUNS} runs", seconds))
    print(as_markdown("CPU seconds, the mean", cpu_seconds))
    print(as_markdown("Milliseconds until a line is printed", {f"{LINES} lines": lines}))


if __name__ == "__main__":
    main()
