"""Samples what a process and its descendants hold: memory, open files, a launcher's clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

from hvd_pods.master.ssh import WAIT

PAUSE_SECONDS = 0.3


@dataclass
class Peak:
    """The most that was seen at one moment: MiB of all and of clients, numbers of clients and of
    files that one process had open. The CPU seconds are those of all processes.
    """

    memory: float = 0.0
    client_memory: float = 0.0
    clients: int = 0
    open_files: int = 0
    cpu_seconds: float = 0.0

    def sample(self, root: psutil.Process) -> None:
        """Look once. The memory that several processes share is divided among them."""
        clients: list[float] = []
        others: list[float] = []
        used = 0.0
        for process in [root, *root.children(recursive=True)]:
            # A process may end meanwhile.
            with suppress(psutil.NoSuchProcess):
                # Also those of its children that have ended.
                used += sum(process.cpu_times()[:4])
                self.open_files = max(self.open_files, process.num_fds())
                kind = clients if is_client(process) else others
                kind.append(process.memory_full_info().pss / 2**20)
        total = sum(clients) + sum(others)
        self.clients = max(self.clients, len(clients))
        self.cpu_seconds = max(self.cpu_seconds, used)
        if total > self.memory:
            self.memory = total
            self.client_memory = sum(clients)


def is_client(process: psutil.Process) -> bool:
    """Whether it is the master's command `ssh`, which becomes a shell that waits."""
    return process.name() == "ssh" or WAIT in process.cmdline()


@contextmanager
def watch_memory(pid: int) -> Iterator[Peak]:
    peak = Peak()
    ended = threading.Event()

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
