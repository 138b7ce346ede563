"""A process that has imported all tests of a copy of the checkout, and runs some in forks.

Each line of its standard input is a task, as JSON; each line of its standard output is the answer.
The working directory is the copy. A fork gives the living functions the code of a mutant. The file
is changed, too, for programs that tests start and for modules that nothing has imported yet.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Any, TextIO

import psutil
import pytest

from devtools.checks.mutation.mutants import Mutant
from devtools.checks.mutation.patches import Patches, find_patches, living_functions
from devtools.checks.mutation.reach import parse_log

TESTS_OF_PODS = "tests/unit/podfiles"
TESTS = ["tests/unit/hvdchart", TESTS_OF_PODS]
OPTIONS = ["-q", "-p", "no:cacheprovider", "-m", "not fuzz"]
# linux/prctl.h: processes that lose their parent become this one's, so that it can end them.
PR_SET_CHILD_SUBREAPER = 36
# The signal that a fork gets when this process ends.
PR_SET_PDEATHSIG = 1
# In the worker's folder: what calls of functions write, and what tests have in place of /tmp.
LOG, TEMPORARY = "log", "t"


@dataclass(frozen=True)
class Ended:
    """How tests ended: the exit status (None: too late), the last test and how long it took."""

    status: int | None
    seconds: float
    last: str = ""


class Runner:
    """A plugin of pytest: once all tests are collected, it runs those that it is asked for."""

    def __init__(self, requests: TextIO, answers: TextIO, folder: Path) -> None:
        self.requests, self.answers = requests, answers
        self.log, self.temporary = folder / LOG, folder / TEMPORARY
        self.is_recording = False
        self.items: dict[str, pytest.Item] = {}
        self.functions: Mapping[str, list[FunctionType]] = {}
        self.changes = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer tasks until there are no more."""
        if session.testsfailed:
            raise RuntimeError("some tests cannot be imported")
        self.items = {item.nodeid: item for item in session.items}
        self.functions = living_functions()
        gc.collect()
        gc.freeze()
        imported = self.log.read_text().split() if self.log.exists() else []
        self._answer({"imported": sorted(set(imported)), "tests": list(self.items)})
        for line in self.requests:
            task = json.loads(line)
            answer = self.record(task["file"]) if "file" in task else self.attempt(**task)
            end_children()
            clear(self.temporary)
            self._answer(answer)
        return True

    def _answer(self, answer: Mapping[str, Any]) -> None:
        print(json.dumps(answer), file=self.answers, flush=True)

    def record(self, file: str) -> dict[str, Any]:
        """What each test of a file calls."""
        self.log.write_text("")
        # Pods of other users write to it, too.
        self.log.chmod(0o666)
        self.is_recording = True
        tests = [name for name in self.items if name.partition("::")[0] == file]
        ended = self._run_in_fork(tests, [], 600)
        if ended.status != 0:
            raise RuntimeError(f"{ended.last}: status {ended.status} after {ended.seconds:.0f} s")
        with self.log.open() as log:
            return {"tests": [vars(test) for test in parse_log(log)]}

    def attempt(
        self, tests: list[str], limit: float, fresh: bool, mutant: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Whether the tests pass with a mutant in place; "changed" is its line.

        fresh: Python starts anew. limit: for how many seconds then, and otherwise for each test.
        """
        if mutant is None:
            ended = run_anew(tests, limit) if fresh else self._run_in_fork(tests, [], limit)
            return {"passes": ended.status == 0}
        change = Mutant(**mutant)
        with self.changed(change) as (before, after):
            if after is None:
                return {"invalid": True}
            functions = self.functions.get(change.module, [])
            path = str(Path(change.module).absolute())
            patches = find_patches(functions, path, before, after)
            fresh = fresh or (bool(functions) and not patches)
            ended = run_anew(tests, limit) if fresh else self._run_in_fork(tests, patches, limit)
        if ended.status != 0 and ended.seconds > limit / 2:
            # On a busy machine, a test can be late without any mutant.
            again = run_anew(tests, limit) if fresh else self._run_in_fork([ended.last], [], limit)
            if again.status != 0:
                return {"unsure": True}
        changed = after.splitlines()[change.line - 1 :] or [""]
        return {"passes": ended.status == 0, "changed": changed[0].strip()}

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[tuple[str, str | None]]:
        """The module's text before and after, while the file has the mutant; None: not valid."""
        module = Path(mutant.module)
        before, times = module.read_text("utf-8"), module.stat()
        after = mutant.apply(before)
        try:
            if after is not None:
                module.write_text(after, "utf-8")
                # Python takes a file of the same time and size for what it has compiled.
                self.changes += 1
                os.utime(module, (self.changes, self.changes))
            yield before, after
        finally:
            module.write_text(before, "utf-8")
            os.utime(module, ns=(times.st_atime_ns, times.st_mtime_ns))

    def _run_in_fork(self, tests: Sequence[str], patches: Patches, limit: float) -> Ended:
        """Run tests in a fork, up to the first that fails or takes more than `limit` seconds."""

        def run(progress: int) -> None:
            for function, code in patches:
                function.__code__ = code
            self._run_items([self.items[name] for name in tests], progress)

        ended, done = fork(run, limit)
        return replace(ended, last=tests[min(done, len(tests) - 1)])

    def _run_items(self, items: Sequence[pytest.Item], progress: int) -> None:
        """Run tests, in a fork, up to the first that fails; ends the process."""
        session = items[0].session
        for item, following in zip(items, [*items[1:], None], strict=True):
            began, spent, failed = time.monotonic(), cpu_time(), session.testsfailed
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.is_recording:
                passed = session.testsfailed == failed
                uses = list(getattr(item, "fixturenames", ()))
                seconds, cpu = round(time.monotonic() - began, 3), round(cpu_time() - spent, 3)
                self._mark(name=item.nodeid, seconds=seconds, cpu=cpu, passed=passed, uses=uses)
            elif session.testsfailed:
                os._exit(1)
            os.write(progress, b".")
        os._exit(0)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Note which fixtures that several tests share call which functions."""
        shared = self.is_recording and fixturedef.scope != "function"
        if shared:
            self._mark(begins=fixturedef.argname)
        try:
            return (yield)
        finally:
            if shared:
                self._mark(fixture=fixturedef.argname)

    def _mark(self, **mark: Any) -> None:
        with self.log.open("a") as log:
            log.write(json.dumps(mark) + "\n")


def cpu_time() -> float:
    """The CPU time of this process, and of those that it has started and that have ended."""
    return sum(os.times()[:4])


def run_anew(tests: Sequence[str], limit: float) -> Ended:
    """Run tests up to the first that fails, in a fork that imports the modules of the copy anew."""

    def run(_: int) -> None:
        copy = f"{Path.cwd()}/"
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(copy):
                del sys.modules[name]
        os._exit(pytest.main(["-x", *OPTIONS, *tests]))

    return fork(run, limit)[0]


def fork(run: Callable[[int], None], limit: float) -> tuple[Ended, int]:
    """Run a function in a fork, and count the bytes that it writes to the pipe that it gets.

    It has `limit` seconds for each.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            run(writing)
        finally:
            os._exit(1)
    os.close(writing)
    process, done, began = os.pidfd_open(child), 0, time.monotonic()
    status, watched = None, [reading, process]
    try:
        while ready := select.select(watched, [], [], limit)[0]:
            if process in ready:
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                break
            if os.read(reading, 1):
                done, began = done + 1, time.monotonic()
            else:
                watched.remove(reading)
    finally:
        os.close(reading)
        os.close(process)
    return Ended(status, time.monotonic() - began), done


def end_children() -> None:
    """End what tests have left running."""
    with suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                for process in psutil.Process().children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                os.waitpid(-1, 0)


def clear(folder: Path) -> None:
    """Empty a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    # As /tmp: pods of other users have their files there.
    folder.chmod(0o1777)


def main(folder: str) -> None:
    """Collect the tests of the working directory and wait for tasks."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with open(os.devnull, "r+") as null:  # noqa: PTH123
        for descriptor in (0, 1):
            os.dup2(null.fileno(), descriptor)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    pytest.main([*OPTIONS, *TESTS], plugins=[Runner(requests, answers, Path(folder))])


if __name__ == "__main__":
    main(sys.argv[1])
