"""The checkpoint of a state on disk, which counts where all memory is gone."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Callable

from .log import say
from .record import Key, Record, read_file

OTHER = "set another OUTPUT_PATH"


class Checkpoint:
    """The file to which rank 0 writes the state now and then, and at the end."""

    def __init__(self, path: Path, minutes: float) -> None:
        self.path = path
        self._every = minutes * 60
        self._written_at = time.monotonic()
        self._writing: threading.Thread | None = None

    def is_due(self) -> bool:
        """Whether the last one is old enough, and nothing of it is still written."""
        is_free = self._writing is None or not self._writing.is_alive()
        return is_free and time.monotonic() - self._written_at > self._every

    def write_beside(self, record: bytearray) -> None:
        """Write a record while the training goes on. What goes wrong is logged."""
        self._written_at = time.monotonic()
        self._writing = threading.Thread(
            target=write_atomically, args=[self.path, record], kwargs={"is_raised": False}
        )
        self._writing.start()

    def write(self, record: bytearray) -> None:
        """Write a record now. Raises OSError where it cannot be written."""
        if self._writing is not None:
            self._writing.join()
        write_atomically(self.path, record)

    def read(self, run: str, find_difference: Callable[[Record], str]) -> tuple[Record | None, str]:
        """The record, and what is wrong with it or its folder.

        Both are None and empty where there is none yet. One of another run has the series -1.
        """
        folder = self.path.parent
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            return None, f"keep: this user cannot write checkpoints to {folder}: {OTHER}"
        try:
            record = read_file(self.path)
            if wrong := find_difference(record):
                return None, f"keep: {wrong}: remove it, or {OTHER}"
        except FileNotFoundError:
            return None, ""
        except (OSError, ValueError) as problem:
            return None, f"keep: {problem}"
        # However many steps another run has made, this one's memory is newer.
        is_of_run = record.value["run"] == run
        return record if is_of_run else record._replace(key=Key(-1, record.key.step)), ""


def write_atomically(path: Path, content: bytearray, *, is_raised: bool = True) -> None:
    """Write a file that is complete under its name at any moment.

    A writer of an earlier attempt, which has lost its network, may still write to the same volume:
    each has a file of its own, and what it has not renamed yet is removed. Raises OSError where the
    file cannot be written, or logs that unless `is_raised`.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        for left in path.parent.glob(f".{path.name}*.new"):
            left.unlink()
        try:
            with os.fdopen(os.open(beside, flags, 0o666), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
    except OSError as problem:
        if is_raised:
            raise
        say(f"cannot write a checkpoint: {problem}")
