"""A worker serves one master at a time: the one whose SSH sessions have the highest epoch.

The master sends the epoch with each session (`SendEnv`). The first session of a newer epoch ends
everything that older ones have left in this worker before its own command starts. A session of an
older epoch is refused. So nothing of an earlier attempt, or of a master that was replaced, writes
to the run's output beside the present attempt.

Each session imports this module first: it must start fast (common/fast_start.py).
"""

from __future__ import annotations

import fcntl
import os
import time

from hvd_pods.common import fast_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

EPOCH = "HVD_EPOCH"
# Epochs are times in milliseconds (rules/holding.py). Clocks may differ, though not by a day.
FAR_AHEAD = 86_400_000
MOST_DIGITS = 18
# The name of the process that guards a warm rank (warm/service.py).
GUARD = "hvd-guard"
SIGKILL = 9
# Seconds in which killed processes must be gone: a process may wait for a file server.
GONE_WITHIN = 30.0


class FenceError(Exception):
    """This worker does not serve the session, for the reason in the message."""


def admit(requested: str | None) -> str:
    """Let a session of this epoch in, and return the epoch; None is the present one.

    Raises FenceError for an older epoch, and when processes of an older one do not end.
    """
    with open(fast_start.EPOCH, "a+", encoding="ascii") as file:
        # Other sessions of a new epoch wait here until no process of the old epoch is left.
        fcntl.flock(file, fcntl.LOCK_EX)
        main, started = _read_worker()
        if main is not None and not started:
            # This is the container's first session: hooks may have started processes, too.
            children = (pid for pid, _, parent, _ in fast_start.processes() if parent == main)
            note_worker(main, *children)
        file.seek(0)
        # Training code can write to it, too.
        newest = _parse(file.read(MOST_DIGITS + 1)) or 0
        epoch = newest if requested is None else _parse(requested)
        if epoch is None:
            raise FenceError(f"refused: {EPOCH}={requested!r:.40} is not a number of this time")
        if epoch < newest:
            raise FenceError(
                f"refused: this master's epoch is {epoch}, but a newer master or attempt "
                f"uses this worker with epoch {newest}"
            )
        if epoch > newest:
            # Written first, so that a session of the old epoch is refused from now on.
            file.truncate(0)
            file.write(str(epoch))
            file.flush()
            end_older(epoch)
            forget_progress()
    return str(epoch)


def _parse(text: str) -> int | None:
    """Parse an epoch; None for what no master sends, such as one that no later one could exceed."""
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        return None
    number = int(text)
    return number if number <= time.time() * 1000 + FAR_AHEAD else None


def end_older(epoch: int) -> None:
    """Kill all processes of older epochs, and wait until they are gone. Raises FenceError."""
    give_up_at = time.monotonic() + GONE_WITHIN
    while True:
        left = list(older_processes(epoch))
        if not left:
            return
        if time.monotonic() > give_up_at:
            raise FenceError(f"cannot end processes of an earlier epoch: {left}")
        for pid in left:
            try:
                # A guard ends the rest of a warm rank, and then itself, as its client is gone.
                if not _is_guard(f"/proc/{pid}"):
                    os.kill(pid, SIGKILL)
            except (ProcessLookupError, FileNotFoundError):
                continue
        time.sleep(0.01)


def forget_progress() -> None:
    """Remove what ranks of older epochs have reported: they may be on other workers now."""
    folder = os.environ.get("HVD_METRICS_DIR", "")
    for name in fast_start.list_names(folder):
        try:
            os.unlink(os.path.join(folder, name))
        except OSError:
            # Training code has made a folder there, or removes files itself.
            continue


def older_processes(epoch: int) -> Iterator[int]:
    """Yield the processes that sessions of older epochs have started, and their descendants."""
    found = list(fast_start.processes())
    # A main program from which this process does not descend is made up. The kernel calls the
    # parent of a container's first process 0.
    own = set(_ancestry(os.getpid(), {pid: parent for pid, _, parent, _ in found}))
    main, started = _read_worker()
    kept = own.union(started)
    parents = {}
    older = set()
    for pid, state, parent, _ in found:
        folder = f"/proc/{pid}"
        if parent == main and main in own and pid not in kept:
            # Left by a session, perhaps without its environment, and inherited by the main program.
            parents[pid] = parent
            older.update([pid] if state != "Z" else [])
            continue
        try:
            is_older = _is_guard(folder) or _is_older(fast_start.read(f"{folder}/environ"), epoch)
            is_here = is_older and _is_here(folder)
        except OSError:
            # The process has ended, or belongs to another user.
            continue
        if state != "Z":
            parents[pid] = parent
            if is_here:
                older.add(pid)
    # A process may have overwritten its environment, as setproctitle does: its ancestors count.
    yield from (pid for pid in parents if any(one in older for one in _ancestry(pid, parents)))


def note_worker(main: int, *started: int) -> None:
    """Write down the worker's main program and its children, which no session has left."""
    try:
        with open(fast_start.WORKER, "w", encoding="ascii") as file:
            file.write(" ".join(map(str, [main, *started])))
    except OSError:
        # The memory volume is full: what sessions have left is known by its environment alone.
        return


def _read_worker() -> tuple[int | None, list[int]]:
    """What `note_worker` has written, or anything, as training code can write to the file, too."""
    try:
        main, *started = map(int, fast_start.read(fast_start.WORKER).split())
    except (OSError, ValueError):
        return None, []
    return main, started


def _is_older(environment: bytes, epoch: int) -> bool:
    """Whether a process has an older epoch, or one that no master sends."""
    for entry in environment.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == EPOCH.encode():
            number = _parse(os.fsdecode(value))
            # A session of a newer one waits until this one has been admitted.
            return number is None or number < epoch
    return False


def _is_guard(folder: str) -> bool:
    """Whether a process guards a warm rank, whose environment does not show its epoch."""
    return fast_start.read(f"{folder}/comm").strip() == GUARD.encode()


def _is_here(folder: str) -> bool:
    """Whether a process is in this container: with hostPID, /proc has those of the whole node."""
    namespaces = [os.stat(f"{one}/ns/mnt").st_ino for one in (folder, "/proc/self")]
    return namespaces[0] == namespaces[1]


def _ancestry(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid in parents:
        yield pid
        pid = parents[pid]
