"""Workers, each with a copy of the checkout, and what they have found out, cached by content."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, TextIO, cast

from devtools.checks.mutation.mutants import ROOT, Mutant, targets
from devtools.checks.mutation.reach import Reach, RecordedTest, add_probes, find_importers
from devtools.checks.mutation.worker import LOG, TEMPORARY, TESTS, TESTS_OF_PODS, clear
from devtools.common.cache import cache_dir, content_key
from devtools.common.ui import note
from hvdchart.files import write_atomically

# What all tests import, and what records their calls: when it changes, they are recorded again.
HELPERS = ["tests/fakes", "devtools/checks/mutation"]
# A mutant whose test takes longer than so many seconds and times its usual duration has hung it;
# and the seconds that a new process has to import tests.
EXTRA, FACTOR, IMPORT = 5.0, 5.0, 15.0


class WorkerEndedError(Exception):
    """A worker has ended instead of answering."""


class Worker:
    """A process of worker.py. `begin` is what it has said first."""

    def __init__(self, folder: Path, with_probes: bool) -> None:
        self.folder, self.with_probes = folder, with_probes
        self.start()

    def start(self) -> None:
        """Start it on a new copy of the checkout."""
        copy, temporary = self.folder / "copy", self.folder / TEMPORARY
        shutil.rmtree(self.folder, ignore_errors=True)
        copy_checkout(copy)
        if self.with_probes:
            for module in all_modules():
                name = str(module.relative_to(ROOT))
                text = add_probes(name, module.read_text("utf-8"), self.folder / LOG)
                (copy / name).write_text(text, "utf-8")
        clear(temporary)
        self.process = subprocess.Popen(
            [*isolate(), sys.executable, "-m", "devtools.checks.mutation.worker", str(self.folder)],
            cwd=copy, env={**os.environ, "TMPDIR": str(temporary)}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.begin = self._answer()

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()

    def ask(self, **task: Any) -> dict[str, Any]:
        """The answer to a task."""
        print(json.dumps(task), file=self.process.stdin, flush=True)
        return self._answer()

    def attempt(
        self, tests: Sequence[RecordedTest], fresh: bool, mutant: Mutant | None
    ) -> dict[str, Any]:
        """Whether the tests pass with a mutant in place."""
        seconds = [test.seconds for test in tests]
        limit = FACTOR * (sum(seconds) if fresh else max(seconds)) + EXTRA + IMPORT * fresh
        names = [test.name for test in tests]
        try:
            return self.ask(tests=names, limit=limit, fresh=fresh, mutant=mutant and asdict(mutant))
        except WorkerEndedError:
            # A mutant that ends the process that tests it does not go unnoticed.
            self.start()
            return {"passes": False, "changed": ""}

    def _answer(self) -> dict[str, Any]:
        line = cast(TextIO, self.process.stdout).readline()
        if not line:
            raise WorkerEndedError(f"the worker ended with status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def isolate() -> list[str]:
    """How to start a program that can end no other processes, which takes the rights of root.

    A defective program may signal to or renice whatever has the number that it takes for its own.
    """
    return [] if os.geteuid() else ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@contextmanager
def start_workers(number: int, with_probes: bool) -> Iterator[queue.SimpleQueue[Worker]]:
    """Workers, of which a thread takes one and puts it back; they are ended at the end."""
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    with ExitStack() as stack:
        # A short path, since those of sockets have a limit.
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hm-")))
        root.chmod(0o711)
        folders = [root / str(index) for index in range(number)]
        with ThreadPoolExecutor(number) as pool:
            for worker in pool.map(lambda folder: Worker(folder, with_probes), folders):
                stack.callback(worker.end)
                idle.put(worker)
        yield idle


def copy_checkout(target: Path) -> None:
    """Copy what git tracks, and what it does not ignore, as it is in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def all_modules() -> list[Path]:
    """The modules of all targets."""
    return [module for modules in targets().values() for module in modules]


def find_reach(jobs: int, names: Sequence[str]) -> Reach:
    """What each test calls: from the cache, for files of tests that are as they were.

    Only the tests of the pods' programs call these, and some call the library, too.
    """
    is_pods = list(names) == ["pods"]
    modules, folders = (targets()["pods"], [TESTS_OF_PODS]) if is_pods else (all_modules(), TESTS)
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("test_*.py"))]
    helpers = {f for name in (*folders, *HELPERS) for f in (ROOT / name).rglob("*.py")} - set(files)
    common = content_key([*modules, *sorted(helpers)])
    folder = cache_dir() / "mutation" / "reach"
    cached = {str(file.relative_to(ROOT)): folder / content_key([file], common) for file in files}
    missing = [name for name, entry in cached.items() if not entry.exists()]
    if missing:
        note(f"Recording what the tests of {len(missing)} files call.")
        folder.mkdir(parents=True, exist_ok=True)
        with start_workers(jobs, with_probes=True) as idle, ThreadPoolExecutor(jobs) as pool:

            def record(name: str) -> None:
                worker = idle.get()
                answer = {**worker.ask(file=name), "imported": worker.begin["imported"]}
                idle.put(worker)
                write_atomically(cached[name], json.dumps(answer))

            list(pool.map(record, missing))
    answers = [json.loads(entry.read_text()) for entry in cached.values()]
    sources = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in all_modules()}
    return Reach(
        [RecordedTest(**test) for answer in answers for test in answer["tests"]],
        {place for answer in answers for place in answer["imported"]},
        find_importers(sources),
    )


@cache
def _digest(name: str) -> str:
    return hashlib.sha256((ROOT / name).read_bytes()).hexdigest()


class Verdicts:
    """What earlier runs have found: by the content of the module, and of the tests' files."""

    def __init__(self) -> None:
        self.file = cache_dir() / "mutation" / "verdicts.jsonl"
        self.known: dict[str, dict[str, Any]] = {}
        if self.file.exists():
            for line in self.file.read_text().splitlines():
                self.known.update(json.loads(line))

    @staticmethod
    def key(mutant: Mutant, tests: Sequence[RecordedTest]) -> str:
        """What a verdict depends on."""
        files = sorted({mutant.module, *(test.file for test in tests)})
        names = sorted(test.name for test in tests)
        parts = [mutant.operator, str(mutant.occurrence), *map(_digest, files), *names]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]

    def add(self, key: str, answer: dict[str, Any]) -> None:
        """Keep an answer, also when this run is interrupted."""
        self.known[key] = answer
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps({key: answer}) + "\n")
