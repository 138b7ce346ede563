"""Writes the states that library/keep holds in this worker's memory to their checkpoints.

A planned end is not a crash: the newest state goes to the volume before the memory is lost. The
worker's main program runs this when its pod ends. The master runs it before another run takes over
the memory. It needs no rank, so that it also saves the states of ranks that were killed or hang.

All workers of a run have the same steps, and may write to one volume at the same time. A lock
beside the checkpoint lets one worker at a time read it. The first one with a newer state writes it.
An older state never replaces a newer one.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import zlib
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.library.keep import packed_state as keep
from hvd_pods.library.keep.packed_content import HEADER_SIZE
from hvd_pods.pod.reporting import log
from hvd_pods.worker.kept_states import KEPT_FOLDER

# A file with a state that is the same for all ranks.
SHARED = re.compile(r"([A-Za-z0-9_-]{1,60})-shared\.[ab]")
# How often to retry reading a state that a rank replaces meanwhile: each commit replaces the one
# before the last.
MAX_SAVE_TRIES = 3
# The bytes of a state to copy at a time.
COPIED_BYTES = 1 << 22


class ReplacedError(Exception):
    """A rank wrote to this part of the memory during the copy."""


def save_all(folder: Path) -> bool:
    """Write each state to its checkpoint, unless the checkpoint is as new; log the result.

    Return False if a state could not be written.
    """
    is_done = True
    for run in sorted(folder.glob("*")):
        shared = [SHARED.fullmatch(path.name) for path in run.glob("*")]
        for name in sorted({match[1] for match in shared if match}):
            is_done = _save(run, name) and is_done
    return is_done


def _save(run: Path, name: str) -> bool:
    state = f"the state {name!r}"
    for _ in range(MAX_SAVE_TRIES):
        packed = _find_newest(run, name)
        if packed is None:
            return True
        state = f"step {packed.key.step} of the state {name!r}"
        path = Path(keep.notes_of(packed).get(keep.CHECKPOINT, ""))
        if path == Path():
            log(
                f"{state} is lost with this worker's memory: there is no OUTPUT_PATH to save it "
                "in, or it is sharded, and other workers have the rest"
            )
            return True
        try:
            is_written = _write(packed, path, f"keep-{name}.state")
        except ReplacedError:
            continue
        except (OSError, ValueError) as problem:
            log(f"{state} is lost with this worker's memory: cannot save it in {path}: {problem}")
            return False
        if is_written:
            log(f"{state} is saved in {path}")
        return True
    log(f"{state} is lost with this worker's memory: ranks that do not end replace it all the time")
    return False


def fits_any_number(run: Path) -> bool:
    """Return whether this folder has states, and any number of ranks can resume from them."""
    matches = [SHARED.fullmatch(path.name) for path in run.glob("*")]
    newest = [_find_newest(run, name) for name in {match[1] for match in matches if match}]
    return bool(newest) and all(
        packed and not keep.notes_of(packed).get(keep.FIXED_SIZE) for packed in newest
    )


def _find_newest(run: Path, name: str) -> keep.PackedState | None:
    """Return the newest complete packed state of a name, the one that `restore` finds."""
    states = []
    for letter in "ab":
        with suppress(OSError, ValueError):
            states.append(keep.read_file(run / f"{name}-shared.{letter}"))
    return max(states, key=lambda packed: packed.key, default=None)


def _write(packed: keep.PackedState, path: Path, name: str) -> bool:
    """Write a packed state to the checkpoint of this name; return False if that is as new.

    Raises OSError where it cannot be written, ValueError for another path, and ReplacedError.
    """
    if not path.is_absolute() or path.name != name:
        raise ValueError(f"this is no path of {name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock(path):
        if not _is_newer(packed, path):
            return False
        # Another name than those of ranks' files: ranks remove the files that other ranks have
        # left.
        for leftover in path.parent.glob(f".{path.name}.*.worker"):
            leftover.unlink()
        beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}.worker")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(beside, flags, 0o666), "wb") as file:
                file.seek(HEADER_SIZE)
                checksum = 0
                for at in range(HEADER_SIZE, len(packed.raw), COPIED_BYTES):
                    piece = bytes(packed.raw[at : at + COPIED_BYTES])
                    checksum = zlib.crc32(piece, checksum)
                    file.write(piece)
                # Read the header from the file: the packed state's map would show the new content
                # as well.
                if _header_of(Path(packed.place)) != packed.header:
                    raise ReplacedError
                file.seek(0)
                file.write(keep.summed_header(packed, checksum))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            with suppress(OSError):
                beside.unlink()
    return True


def _is_newer(packed: keep.PackedState, path: Path) -> bool:
    """Return whether a state is newer than a checkpoint, or the checkpoint is unusable.

    Launches of a release are numbered across its runs. Within a run, the steps decide.
    """
    try:
        checkpoint = keep.read_file(path, is_checked=False)
        is_of_run = keep.notes_of(checkpoint).get("run") == keep.notes_of(packed).get("run")
        if packed.key > checkpoint.key if is_of_run else packed.key.launch > checkpoint.key.launch:
            return True
        # Read the checkpoint's arrays only if it would stay.
        keep.read_file(path)
    except (FileNotFoundError, ValueError):
        return True
    return False


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Prevent other workers from writing this checkpoint, on volumes that support locks."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path.with_name(f".{path.name}.lock"), flags, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as problem:
            log(f"{path.parent} has no locks, so that workers may write there at once: {problem}")
        yield
    finally:
        os.close(descriptor)


def _header_of(path: Path) -> bytes:
    with suppress(OSError), path.open("rb") as file:
        return file.read(HEADER_SIZE)
    return b""


def main() -> int:
    """Save the states that are kept here. Returns 1 where a state could not be saved."""
    return 0 if save_all(KEPT_FOLDER) else 1


if __name__ == "__main__":
    sys.exit(main())
