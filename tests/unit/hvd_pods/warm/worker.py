"""A worker with a warm process, whose modules are small stand-ins for frameworks."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

from tests.support.waiting import wait_until
from tests.unit.hvd_pods.copies import copy_files

# It imports what frameworks import, whose state at that time a rank must not inherit.
FRAMEWORK = """
import logging, multiprocessing.spawn, os, sys
PID = os.getpid()
os.environ["OF_THE_IMPORT"], os.environ["OF_EACH_RANK"] = "1", os.environ.get("OF_EACH_RANK", "2")
logger = logging.getLogger("framework")
logger.addHandler(logging.StreamHandler(sys.stdout))
"""
# Each generator is seeded when its module is imported; `random` is Python's own.
RANDOM_MODULES = {
    "numpy/__init__": "",
    "numpy/random": "import random\nown = random.Random()\nseed = own.seed\nrandom.random()",
    "torch": """
import random
class State(list):
    def __eq__(self, other):
        return State([list(self) == list(other)])
    def all(self):
        return all(self)
class Generator:
    def __init__(self):
        self.own = random.Random(1)
    def get_state(self):
        return State(self.own.getstate())
default_generator = Generator()
def seed():
    default_generator.own.seed()
""",
    "touched": "import torch\ntorch.default_generator.own.random()",
}
# The only rank, as Open MPI starts it.
ONLY_RANK = {
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "HVD_SLOTS": "1",
}
# As a plan sets them; start.py chooses them otherwise, and says so.
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
class Worker:
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
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.root),
            "PYTHONPATH": str(self.modules),
            **THREADS,
        }

    def command(self, *command: str) -> list[str]:
        """The command line with which a launcher starts a rank."""
        program = str(self.root / "bin" / "hvd_pods/rank/start.py")
        return [sys.executable, "-I", "-S", program, "1", *command]

    def start(
        self, *command: str, variables: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        environment = {**self.environment(), **ONLY_RANK, **(variables or {})}
        options = {"stdout": PIPE, "stderr": PIPE, **options}
        return subprocess.Popen(self.command(*command), env=environment, **options)

    def run(
        self, *command: str, input: bytes = b"", **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        with self.start(*command, **{"stdin": PIPE, **options}) as process:
            output, errors = process.communicate(input or None, timeout=60)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def show(self, code: str, **options: Any) -> str:
        """What a Python program prints in a rank, without the line of start.py."""
        done = self.run("python3", "-c", code, **options)
        assert done.returncode == 0, done.stderr.decode()
        return "".join(done.stdout.decode().splitlines(keepends=True)[1:])


@contextmanager
def make_worker(modules: Mapping[str, str] | None = None) -> Iterator[Worker]:
    """A worker without a warm process. A path of a Unix socket must be short."""
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        worker = Worker(Path(name))
        copy_files(worker.root, sys.executable)
        (worker.root / "generated").mkdir()
        for module, text in {"framework": FRAMEWORK, **(modules or {})}.items():
            file = worker.modules / f"{module}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        yield worker


@contextmanager
def warm(
    worker: Worker, preload: Sequence[str] = ("framework",), **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the worker's warm process; it has imported its modules."""
    environment = {**worker.environment(), "HVD_PRELOAD": ", ".join(preload), **variables}
    # Of the container's earlier start.
    for name in ("warm.sock", "warm.json"):
        (worker.root / "generated" / name).write_text("left")
    with (worker.root / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", START, str(worker.root / "bin")],
            env=environment,
            stdin=PIPE,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: "[hvd] " in worker.log or process.poll() is not None, 60, "it imports")
        assert process.poll() is None, worker.log
        yield process
    finally:
        process.communicate()


@contextmanager
def running(worker: Worker, script: str) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """Start a rank; yields its client, and the process IDs that it prints."""
    with worker.start("python3", "-c", script) as client:
        try:
            assert client.stdout is not None
            client.stdout.readline()
            yield client, [int(word) for word in client.stdout.readline().split()]
        finally:
            client.kill()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not reaped does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def children(pid: int) -> list[int]:
    file = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in file.read_text().split()]
