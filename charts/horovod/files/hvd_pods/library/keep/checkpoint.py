"""The checkpoint of a state on disk, which counts if all memory is lost."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import zlib
from pathlib import Path
from typing import Callable

from .log import log
from .packed_state import PackedState, StepKey, read_file

OTHER_PATH_REMEDY = "set another OUTPUT_PATH"


class Checkpoint:
    """The file to which rank 0 writes the state periodically, and at the end."""

    def __init__(self, path: Path, minutes: float) -> None:
        self.path = path
        self._interval_seconds = minutes * 60
        self._written_at = time.monotonic()
        self._writing: threading.Thread | None = None
        # Whether the last one is complete, or there is none.
        self.was_written = True

    @property
    def is_free(self) -> bool:
        """Whether the last checkpoint is completely written."""
        return self._writing is None or not self._writing.is_alive()

    def is_due(self) -> bool:
        """Return whether the last checkpoint is old enough and completely written."""
        return self.is_free and time.monotonic() - self._written_at > self._interval_seconds

    def write_beside(self, packed: bytearray) -> None:
        """Write a packed state while the training continues. Log errors."""
        self._written_at = time.monotonic()
        self.was_written = False

        def write() -> None:
            self.was_written = write_atomically(self.path, packed, is_raised=False)

        self._writing = threading.Thread(target=write)
        self._writing.start()

    def write(self, packed: bytearray) -> None:
        """Write a packed state now. Raises OSError if it cannot be written."""
        self.wait()
        self.was_written = False
        self.was_written = write_atomically(self.path, packed)

    def wait(self) -> None:
        """Wait until the last checkpoint is completely written."""
        if self._writing is not None:
            self._writing.join()

    def read(
        self, run: str, find_difference: Callable[[PackedState], str], *, is_checked: bool = True
    ) -> tuple[PackedState | None, str]:
        """Return the packed state, and what is wrong with it or its folder.

        Both are None and empty if there is none yet. A state of another run has the series -1.
        Unless `is_checked`, its arrays are not read to verify the checksum.
        """
        folder = self.path.parent
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            no_access = f"this user cannot write checkpoints to {folder}"
            return None, f"keep: {no_access}: {OTHER_PATH_REMEDY}"
        try:
            packed = read_file(self.path, is_checked=is_checked)
            if wrong := find_difference(packed):
                return None, f"keep: {wrong}: remove it, or {OTHER_PATH_REMEDY}"
        except FileNotFoundError:
            return None, ""
        except (OSError, ValueError) as problem:
            return None, f"keep: {problem}"
        written_by = packed.value["run"]
        if written_by == run:
            return packed, ""
        # However many steps another run has made, this one's memory is newer. The epochs of its
        # launches may be those of a third run.
        launch = zlib.crc32(f"{packed.key.launch} {written_by}".encode())
        return packed._replace(key=StepKey(-1, packed.key.step, launch)), ""


def write_atomically(path: Path, content: bytearray, *, is_raised: bool = True) -> bool:
    """Write a file that is complete under its name at any moment; return whether it is written.

    A writer of an earlier attempt, which has lost its network, may still write to the same volume.
    Each writer has a file of its own, and what it has not renamed yet is removed. Raises OSError if
    the file cannot be written, or logs the error unless `is_raised`.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        for leftover in path.parent.glob(f".{path.name}*.new"):
            leftover.unlink()
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
        log(f"cannot write a checkpoint: {problem}")
        return False
    return True


class ShardCheckpoints:
    """Two files to which this rank writes its shard in turn, when all ranks do.

    All ranks have the same step in one of them at any moment.
    """

    def __init__(self, folder: Path, name: str, rank: int, size: int, minutes: float) -> None:
        self.both = [
            Checkpoint(folder / f"keep-{name}-rank-{rank}-of-{size}.{letter}.state", minutes)
            for letter in "ab"
        ]
        # The one that was written last, or that is the first to be written.
        self._turn = 0
        self._has_begun = False

    @property
    def was_written(self) -> bool:
        """Whether this rank has written its last checkpoint."""
        return all(checkpoint.was_written for checkpoint in self.both)

    def is_ready(self, rank: int) -> bool:
        """Return whether all writes are complete and rank 0's checkpoints are old enough."""
        return all(checkpoint.is_free if rank else checkpoint.is_due() for checkpoint in self.both)

    def wait(self) -> None:
        """Wait until all writes are complete."""
        for checkpoint in self.both:
            checkpoint.wait()

    def begin_with(self, turn: int) -> None:
        """Set which of the two files the next checkpoint replaces."""
        self._turn = turn

    def take(self, *, were_written: bool) -> Checkpoint:
        """Return the file to write now.

        `were_written` is whether all ranks have written the last one.
        """
        if were_written and self._has_begun:
            self._turn = 1 - self._turn
        self._has_begun = True
        return self.both[self._turn]
