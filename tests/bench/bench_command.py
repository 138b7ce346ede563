"""Measures the commands that people type most, in a new process each time.

python -m tests.bench.bench_command [REVISION]

With a revision of this repository, measures that one too. The aims, which nothing checks: 0.15 s
for --help and --version, 0.5 s for status. The API server is a small one on this machine. Modules
are compiled before the first measured run, as installed ones are.
"""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.report import print_figures
from tests.fakes.cluster import FakeCluster, running, write_kubeconfig
from tests.unit.hvdchart.runs import MASTER, STATEFUL_SET, WORKERS, job

ROOT = Path(__file__).parents[2]
RUNS = 10
COMMANDS = (("--help",), ("--version",), ("status", "hvd"), ("list",))


def times(arguments: Sequence[str], root: Path, kubeconfig: Path) -> tuple[list[float], str]:
    """The seconds of each run, and the mean CPU seconds; on a busy machine, compare these."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(root)}
    # Compiled modules go to a folder of their own: not into the working tree.
    environment["PYTHONPYCACHEPREFIX"] = f"{kubeconfig.parent}/compiled"
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run() -> float:
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "hvdchart", *arguments],
            env=environment, cwd=root, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return time.perf_counter() - start

    try:
        run()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        walls = [run() for _ in range(RUNS)]
    except subprocess.CalledProcessError as error:
        return [float("nan")], error.stderr.splitlines()[0][:40]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return walls, f"{cpu / RUNS:.2f}"


def checked_out(revision: str, folder: Path) -> Path:
    """The library as it was at a revision."""
    command = ["git", "archive", revision, "hvdchart", "charts"]
    packed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main() -> None:
    """Measure and print."""
    seconds, cpu_seconds = {}, {}
    cluster = FakeCluster()
    with tempfile.TemporaryDirectory() as name, running(cluster) as address:
        folder = Path(name)
        cluster.put("jobs", job())
        cluster.put("statefulsets", STATEFUL_SET)
        cluster.put("pods", MASTER, *WORKERS)
        kubeconfig = folder / "kubeconfig"
        write_kubeconfig(kubeconfig, address)
        roots = {revision: checked_out(revision, folder / revision) for revision in sys.argv[1:]}
        for version, root in {**roots, "now": ROOT}.items():
            for arguments in COMMANDS:
                row = f"{' '.join(arguments)}, {version}"
                seconds[row], cpu_seconds[row] = times(arguments, root, kubeconfig)
    print_figures(f"Seconds of {RUNS} runs", seconds, cpu=cpu_seconds)


if __name__ == "__main__":
    main()
