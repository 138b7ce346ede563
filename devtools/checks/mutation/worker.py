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
import shutil
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any, TextIO

import pytest

from devtools.checks.mutation.forks import Ended, end_children, fork, run_anew
from devtools.checks.mutation.mutants import Mutant
from devtools.checks.mutation.patches import Patches, find_patches, living_functions
from devtools.checks.mutation.probes import parse_log

TESTS = ["tests/unit/hvdchart", "tests/unit/hvd_pods"]
OPTIONS = ["-q", "-p", "no:cacheprovider", "-m", "not fuzz"]
# linux/prctl.h: processes that lose their parent become this one's, so that it can end them.
PR_SET_CHILD_SUBREAPER = 36
# In the worker's folder: what calls of functions write, and what tests have in place of /tmp.
LOG, TEMPORARY = "log", "t"


class Runner:
    """A plugin of pytest: once all tests are collected, it runs those that it is asked for."""

    def __init__(self, requests: TextIO, answers: TextIO, errors: TextIO, folder: Path) -> None:
        self.requests, self.answers, self.errors = requests, answers, errors
        self.log, self.temporary = folder / LOG, folder / TEMPORARY
        self.is_recording = False
        self.items: dict[str, pytest.Item] = {}
        self.functions: Mapping[str, list[FunctionType]] = {}
        self.changes = 0
        self.unchanged: dict[tuple[object, ...], bool] = {}

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

    def pytest_internalerror(self, excrepr: object) -> None:
        """Say why the worker cannot go on: what pytest itself prints is not shown."""
        print(excrepr, file=self.errors, flush=True)

    def _answer(self, answer: Mapping[str, Any]) -> None:
        print(json.dumps(answer), file=self.answers, flush=True)

    def record(self, file: str) -> dict[str, Any]:
        """What each test of a file calls."""
        self.log.write_text("")
        # Pods of other users write to it, too.
        self.log.chmod(0o666)
        self.is_recording = True
        tests = [name for name in self.items if name.partition("::")[0] == file]
        if not tests:
            return {"tests": []}
        ended = self._run_in_fork(dict.fromkeys(tests, 600.0), [])
        if ended.status != 0:
            last = ended.begun[-1:]
            raise RuntimeError(f"{last}: status {ended.status} after {ended.seconds:.0f} s")
        with self.log.open() as log:
            return {"tests": [vars(test) for test in parse_log(log)]}

    def attempt(
        self, limits: dict[str, float], fresh: bool, mutant: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Whether tests pass with a mutant in place; "changed" is its line, "by" the failed test.

        limits: the tests, and how many seconds each has. fresh: Python starts anew.
        """
        if mutant is None:
            return {"passes": self._run(limits, [], fresh).status == 0}
        change = Mutant(**mutant)
        with self.changed(change) as (before, after):
            if after is None:
                return {"invalid": True}
            functions = self.functions.get(change.module, [])
            path = str(Path(change.module).absolute())
            patches = find_patches(functions, path, before, after)
            fresh = fresh or (bool(functions) and not patches)
            ended = self._run(limits, patches, fresh)
            begun = ended.begun or [next(iter(limits))]
            failed = {begun[-1]: limits[begun[-1]]}
            is_late = ended.seconds > limits[begun[-1]] / 2
            is_first = len(begun) == 1 or ended.status == 0 or is_late
            is_own = is_first or self._run(failed, patches, fresh).status != 0
        answer = {"changed": (after.splitlines()[change.line - 1 :] or [""])[0].strip()}
        if ended.status == 0:
            return {**answer, "passes": True}
        if is_late:
            # On a busy machine, a test can be late without any mutant.
            if self._run(failed, [], fresh).status != 0:
                return {"unsure": True}
        elif not self._passes_unchanged(failed if is_own else {n: limits[n] for n in begun}, fresh):
            others = {name: limits[name] for name in limits if name not in begun}
            return self.attempt(others, fresh, mutant) if others else {**answer, "passes": True}
        return {**answer, "passes": False, "by": begun[-1]}

    def _passes_unchanged(self, limits: Mapping[str, float], fresh: bool) -> bool:
        """Whether tests pass here without any mutant; otherwise they say nothing about one."""
        key = (fresh, *limits)
        if key not in self.unchanged:
            self.unchanged[key] = self._run(limits, [], fresh).status == 0
        return self.unchanged[key]

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

    def _run(self, limits: Mapping[str, float], patches: Patches, fresh: bool) -> Ended:
        return run_anew(limits, OPTIONS) if fresh else self._run_in_fork(limits, patches)

    def _run_in_fork(self, limits: Mapping[str, float], patches: Patches) -> Ended:
        """Run tests in a fork, up to the first that fails or takes too long."""

        def run(progress: int) -> None:
            for function, code in patches:
                function.__code__ = code
            self._run_items([self.items[name] for name in limits], progress)

        return fork(run, limits)

    def _run_items(self, items: Sequence[pytest.Item], progress: int) -> None:
        """Run tests, in a fork, up to the first that fails; ends the process."""
        session = items[0].session
        for item, following in zip(items, [*items[1:], None], strict=True):
            os.write(progress, f"{item.nodeid}\n".encode())
            began, spent, failed = time.monotonic(), cpu_time(), session.testsfailed
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.is_recording:
                passed = session.testsfailed == failed
                uses = list(getattr(item, "fixturenames", ()))
                seconds, cpu = round(time.monotonic() - began, 3), round(cpu_time() - spent, 3)
                self._mark(name=item.nodeid, seconds=seconds, cpu=cpu, passed=passed, uses=uses)
            elif session.testsfailed:
                os._exit(1)
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


def clear(folder: Path) -> None:
    """Empty a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    # As /tmp: pods of other users have their files there.
    folder.chmod(0o1777)


def main(folder: str) -> None:
    """Collect the tests of the working directory and wait for tasks."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    errors = os.fdopen(os.dup(2), "w")
    with open(os.devnull, "r+") as null:  # noqa: PTH123
        for descriptor in (0, 1):
            os.dup2(null.fileno(), descriptor)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    pytest.main([*OPTIONS, *TESTS], plugins=[Runner(requests, answers, errors, Path(folder))])


if __name__ == "__main__":
    main(sys.argv[1])
