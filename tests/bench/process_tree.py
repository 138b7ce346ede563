"""Samples what a process and its descendants hold: memory, open files, connections of SSH."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil

PAUSE_SECONDS = 0.3


@dataclass
class Peak:
    """The most that was seen at one moment, in MiB, and the numbers of processes and files."""

    memory: float = 0.0
    cpu_seconds: float = 0.0
    memory_by_name: dict[str, float] = field(default_factory=dict)
    processes: Counter[str] = field(default_factory=Counter)
    open_files: Counter[str] = field(default_factory=Counter)

    def sample(self, root: psutil.Process) -> None:
        """Look once. The memory that several processes share is divided among them."""
        counts: Counter[str] = Counter()
        memory: Counter[str] = Counter()
        # Those of the children that have ended count with those of the root.
        used = root.cpu_times()
        self.cpu_seconds = used.user + used.system + used.children_user + used.children_system
        for process in [root, *root.children(recursive=True)]:
            # A process may end meanwhile.
            with suppress(psutil.NoSuchProcess):
                name, files = process.name(), process.num_fds()
                memory[name] += process.memory_full_info().pss
                counts[name] += 1
                self.open_files[name] = max(self.open_files[name], files)
        self.processes |= counts
        if memory.total() / 2**20 > self.memory:
            self.memory = memory.total() / 2**20
            self.memory_by_name = {name: held / 2**20 for name, held in memory.items()}


@contextmanager
def watch(pid: int) -> Iterator[Peak]:
    """Sample in a thread until the end of the block."""
    peak, ended = Peak(), threading.Event()

    def sample_all() -> None:
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(pid)
            while not ended.wait(PAUSE_SECONDS):
                peak.sample(root)

    thread = threading.Thread(target=sample_all, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()
