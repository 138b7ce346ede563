"""Locks between processes of this machine: the kernel releases one when its holder ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from devtools.common.ui import note


@contextmanager
def exclusive_lock(file: Path, task: str) -> Iterator[None]:
    """Holds the lock `file` while the body runs, and waits for it first.

    task: what the holder does, such as "building kube"; it is named while another process holds
    the lock.
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
