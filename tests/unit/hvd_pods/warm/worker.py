"""A worker with a warm process, whose modules are small stand-ins for frameworks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

from devtools.pods.warm_worker import WarmWorker, warm_process, worker_root

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


class Worker(WarmWorker):
    """A worker whose only rank a test starts."""

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
    """A worker without a warm process, with `framework` and these modules."""
    with worker_root({"framework": FRAMEWORK, **(modules or {})}) as root:
        yield Worker(root)


def warm_up(
    worker: Worker, preload: Sequence[str] = ("framework",), **variables: str
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """The worker's warm process in a block; it has imported its modules."""
    return warm_process(worker, preload, **variables)


@contextmanager
def run_rank(worker: Worker, script: str) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """Start a rank; yields its client, and the process IDs that it prints."""
    with worker.start("python3", "-c", script) as client:
        try:
            assert client.stdout is not None
            client.stdout.readline()
            yield client, [int(word) for word in client.stdout.readline().split()]
        finally:
            client.kill()


def list_children(pid: int) -> list[int]:
    file = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in file.read_text().split()]
