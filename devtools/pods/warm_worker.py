"""A worker of the chart on this machine, with its warm process, outside of a pod."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devtools.common.waiting import wait_until
from devtools.pods.program_copies import copy_files

# The values that a plan sets. Otherwise start.py chooses them and logs its choice.
THREADS = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMP_NUM_THREADS": "1",
    "TF_ENABLE_ONEDNN_OPTS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}
START = """
import os, sys
sys.path.insert(0, sys.argv[1])
from hvd_pods.worker import main
main.start_warm_process(sys.executable, os.environ)
sys.stdin.read()
"""


@dataclass(frozen=True)
class WarmWorker:
    """A worker's folders; `modules` is on the path of its Python."""

    root: Path

    @property
    def modules(self) -> Path:
        return self.root / "modules"

    @property
    def socket(self) -> Path:
        return self.root / "generated" / "warm.sock"

    @property
    def log(self) -> str:
        return (self.root / "log").read_text()

    def environment(self) -> dict[str, str]:
        """Return the variables of the warm process and of ranks, except those of a launcher."""
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.root),
            "PYTHONPATH": str(self.modules),
            **THREADS,
        }

    def command(self, *command: str) -> list[str]:
        """Return the command line with which a launcher starts a rank."""
        program = str(self.root / "bin" / "hvd_pods/rank/start.py")
        return [sys.executable, "-I", "-S", program, "1", *command]


@contextmanager
def worker_root(modules: Mapping[str, str]) -> Iterator[Path]:
    """Create the folder of a worker without a warm process, until the end of the block.

    modules: the texts of modules by their paths without `.py`. The folder is one of the system's
    temporary folders, because a path of a Unix socket must be short.
    """
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        worker = WarmWorker(Path(name))
        copy_files(worker.root, sys.executable)
        (worker.root / "generated").mkdir()
        for module, text in modules.items():
            file = worker.modules / f"{module}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        yield worker.root


@contextmanager
def warm_process(
    worker: WarmWorker, preload: Sequence[str], **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the worker's warm process. When the block begins, it has imported `preload`.

    Raises AssertionError, with the worker's log, when it has ended instead.
    """
    environment = {**worker.environment(), "HVD_PRELOAD": ", ".join(preload), **variables}
    # Files of an earlier start of the container.
    for name in ("warm.sock", "warm.json"):
        (worker.root / "generated" / name).write_text("left")
    with (worker.root / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", START, str(worker.root / "bin")],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: "[hvd" in worker.log or process.poll() is not None, 60, "it imports")
        if process.poll() is not None:
            raise AssertionError(worker.log)
        yield process
    finally:
        process.communicate()


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")
