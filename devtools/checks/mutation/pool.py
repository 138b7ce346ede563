"""Workers, each with a copy of the checkout."""

from __future__ import annotations

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
from pathlib import Path
from typing import Any, TextIO, cast

from devtools.checks.mutation.mutants import ROOT, Mutant, targets
from devtools.checks.mutation.probes import RecordedTest, add_probes
from devtools.checks.mutation.worker import LOG, TEMPORARY, clear

# A mutant whose test takes longer than so many seconds and times its usual duration has hung it.
EXTRA, FACTOR = 3.0, 4.0


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
        """Whether the tests pass with a mutant in place, and which one fails."""
        limits = {test.name: FACTOR * test.seconds + EXTRA for test in tests}
        try:
            return self.ask(limits=limits, fresh=fresh, mutant=mutant and asdict(mutant))
        except WorkerEndedError:
            # A mutant that ends the process that tests it does not go unnoticed.
            self.start()
            return {"passes": False, "changed": "", "by": tests[0].name}

    def _answer(self) -> dict[str, Any]:
        line = cast(TextIO, self.process.stdout).readline()
        if not line:
            raise WorkerEndedError(f"the worker ended with status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def isolate() -> list[str]:
    """How to start a program that can end no other processes, which takes the rights of root.

    A defective program may signal to or renice whatever has the number that it takes for its own.
    One has emptied /etc/passwd, so that /etc is read-only, too.
    """
    if os.geteuid():
        return []
    keep = 'mount --bind /etc /etc && mount -o remount,bind,ro /etc && exec "$@"'
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    return [*unshare, "sh", "-c", keep, "sh"]


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


@contextmanager
def taken_from(idle: queue.SimpleQueue[Worker]) -> Iterator[Worker]:
    """A worker, which is put back, also if it has ended: other threads wait for one."""
    worker = idle.get()
    try:
        yield worker
    finally:
        idle.put(worker)


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
