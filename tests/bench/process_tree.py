"""Samples what a process and its descendants hold: memory, open files, connections of SSH."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import psutil

PAUSE_SECONDS = 0.3


@dataclass
class Peak:
    """The most that was seen at one moment, in MiB, and the numbers of processes and files."""

    memory: float = 0.0
    memory_by_name: dict[str, float] = field(default_factory=dict)
    processes: Counter[str] = field(default_factory=Counter)
    open_files: Counter[str] = field(default_factory=Counter)


class Watch:
    """Samples in a thread until the end of the block. `peak` has the result."""

    def __init__(self, pid: int) -> None:
        self.peak = Peak()
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample_all, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _sample_all(self) -> None:
        while not self._ended.wait(PAUSE_SECONDS):
            try:
                self._sample([self._root, *self._root.children(recursive=True)])
            except psutil.NoSuchProcess:
                return

    def _sample(self, processes: list[psutil.Process]) -> None:
        counts: Counter[str] = Counter()
        memory: Counter[str] = Counter()
        for process in processes:
            try:
                name = process.name()
                memory[name] += _proportional_kib(process.pid)
                files = process.num_fds()
            except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
                continue
            counts[name] += 1
            self.peak.open_files[name] = max(self.peak.open_files[name], files)
        self.peak.processes |= counts
        if memory.total() / 1024 > self.peak.memory:
            self.peak.memory = memory.total() / 1024
            self.peak.memory_by_name = {name: kib / 1024 for name, kib in memory.items()}


def _proportional_kib(pid: int) -> int:
    """The memory of a process; what several share is divided among them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0
