"""Locks between processes of this machine. The kernel releases a lock when its holder exits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from devtools.common.ui import note


@contextmanager
def exclusive_lock(file: Path, task: str) -> Iterator[None]:
    """Wait for the lock `file` and hold it while the body runs.

    task: what the holder does, such as "building kube". A process that waits for the lock shows it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        note(f"Waiting: another process is {task} (lock {file}).")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
