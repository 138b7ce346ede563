"""Tests that run in forks of a process, each with a time limit."""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

# What a pipe holds: a read of so many bytes gets all names that are there, and none in part.
PIPE_SIZE = 65536
# The seconds that a fork has to import tests.
IMPORT = 20.0
# The signal that a fork gets when this process ends.
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Ended:
    """How tests ended: the exit status (None: too late), and how long the last one took.

    `begun`: the tests that began, the last of which failed if one did.
    """

    status: int | None
    seconds: float
    begun: Sequence[str]


def fork(run: Callable[[int], None], limits: Mapping[str, float]) -> Ended:
    """Run a function in a fork; it writes the name of each test that begins to the pipe it gets.

    Each test has the seconds in `limits`, and all imports before the first have IMPORT.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # It lives too briefly for collecting garbage to pay.
            gc.disable()
            os.setsid()
            os.dup2(1, 2)
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            run(writing)
        finally:
            os._exit(1)
    os.close(writing)
    process, begun, limit, began = os.pidfd_open(child), list[str](), IMPORT, time.monotonic()
    status, watched = None, [reading, process]
    try:
        while ready := select.select(watched, [], [], limit)[0]:
            # The pipe comes first: a name can be there when the process has just ended.
            if reading not in ready:
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                break
            if names := os.read(reading, PIPE_SIZE).decode().splitlines():
                begun += names
                limit, began = limits[names[-1]], time.monotonic()
            else:
                watched.remove(reading)
        if status is None:
            os.killpg(child, signal.SIGKILL)
    finally:
        os.close(reading)
        os.close(process)
    return Ended(status, time.monotonic() - began, begun)


class Progress:
    """A plugin of pytest: it writes the name of each test that begins to a pipe."""

    def __init__(self, progress: int) -> None:
        self.progress = progress

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write the name."""
        os.write(self.progress, f"{nodeid}\n".encode())


def run_anew(limits: Mapping[str, float], options: Sequence[str]) -> Ended:
    """Run tests up to the first that fails, in a fork that imports the modules of the copy anew."""

    def run(progress: int) -> None:
        copy = f"{Path.cwd()}/"
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            if file.startswith(copy) and name != "__main__":
                del sys.modules[name]
        os._exit(pytest.main(["-x", *options, *limits], plugins=[Progress(progress)]))

    return fork(run, limits)


def end_children() -> None:
    """End what tests have left running."""
    with suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                for process in psutil.Process().children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                os.waitpid(-1, 0)
