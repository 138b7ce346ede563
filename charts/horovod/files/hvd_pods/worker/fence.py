"""A worker serves one master at a time: the one whose requests have the highest fence number.

The number is in the agent's memory, and only a master with its certificate changes it. The first
request with a higher one ends everything that earlier ones have left in this worker before its own
program starts. A request with a lower one is refused. So nothing of an earlier attempt, or of a
master that was replaced, writes to the run's output beside the present attempt.

Training code may be of the user that owns the programs of the chart, which each container unpacks
(files/unpack.py). What it has changed there does not run for a later attempt: the container ends.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Iterator

from hvd_pods.common import files, processes
from hvd_pods.common.errors import RunError
from hvd_pods.common.paths import PROGRAMS
from hvd_pods.rank import warm_client

# Seconds in which killed processes must be gone: a process may wait for a file server. And those
# in which the guard of a warm rank ends the rank, and then itself, as the rank's client is gone.
GONE_WITHIN = 30.0
GUARDS_WITHIN = 5.0
# Of the fields of read_stat: the time at which a process was started.
STARTED = 19


class FenceError(Exception):
    """This worker does not serve the request, for the reason in the message."""


class ChangedProgramsError(RunError):
    """A program of the chart is not what this container has unpacked."""


class Fence:
    """Admits the requests with one fence number. `main` is the worker's main program.

    It is made before any training code runs in the worker.
    """

    def __init__(
        self,
        main: int,
        metrics_folder: str,
        gone_within: float = GONE_WITHIN,
        guards_within: float = GUARDS_WITHIN,
    ) -> None:
        self.number = 0
        self._gone_within = gone_within
        self._guards_within = guards_within
        self._main = main
        self._metrics = metrics_folder
        # When the processes of earlier attempts must be gone; None while none are awaited.
        self._until: float | None = None
        # Whether they were not gone then.
        self._has_failed = False
        # What the main program has started itself, before any training code ran.
        self._own = set(_children(main))
        self._programs = _states(Path(PROGRAMS))

    @property
    def is_closed(self) -> bool:
        """Whether requests must wait until the processes of earlier attempts are gone."""
        return self._until is not None

    def admit(self, number: int) -> bool:
        """Check the number of a request; 0 is the present one. Returns whether it is a new one.

        Raises FenceError for a lower number.
        """
        if number and number < self.number:
            raise FenceError(
                f"refused: this master's fence number is {number}, but a newer master or attempt "
                f"uses this worker with number {self.number}"
            )
        is_new = number > self.number
        if is_new or self._has_failed:
            self.number = max(number, self.number)
            self._has_failed = False
            self._until = time.monotonic() + self._gone_within
        return is_new

    def end_older(self) -> bool:
        """Kill what earlier attempts have left. Returns whether it is gone; call again until it is.

        Raises FenceError when it does not end in time, and ChangedProgramsError when it has changed
        a program of the chart: nothing may start here before the container has started again.
        """
        for _ in processes.ended_children():
            continue
        left = self._kill()
        # What has lost its parent is a child of this process, or of the main program.
        if not left and not processes.has_child():
            changed = _states(Path(PROGRAMS)) ^ self._programs
            if changed:
                name = min(path for path, _, _ in changed)
                raise ChangedProgramsError(
                    f"{name} has changed since this container unpacked the programs of the chart: "
                    "an earlier script did that; the container starts again and unpacks them anew"
                )
            self._until = None
            self._forget_progress()
            return True
        if self._until is not None and time.monotonic() > self._until:
            self._until = None
            self._has_failed = True
            raise FenceError(f"cannot end processes of an earlier attempt: {sorted(left)}")
        return False

    def _kill(self) -> set[int]:
        started = set(processes.descendants(os.getpid()))
        # A second look finds the child of a process that ended during the first one.
        for orphan in self._orphans() or self._orphans():
            started |= {orphan, *processes.descendants(orphan)}
        guards = set(self._guards())
        killed = set(started)
        waited = self._gone_within - ((self._until or 0.0) - time.monotonic())
        if waited > self._guards_within:
            for guard in guards:
                killed |= {guard, *processes.descendants(guard)}
        for pid in killed:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return started | guards

    def _orphans(self) -> set[int]:
        """Return processes whose parents were killed, such as guards of ranks by training code."""
        return {pid for pid, _ in set(_children(self._main)) - self._own}

    def _guards(self) -> Iterator[int]:
        """Yield the guards of warm ranks, which are below the process that has imported."""
        for pid in processes.descendants(self._main):
            with suppress(OSError):
                if files.read(f"/proc/{pid}/comm").strip() == warm_client.GUARD.encode():
                    yield pid

    def _forget_progress(self) -> None:
        """Remove what ranks of earlier attempts have reported: they may be on other workers now."""
        for name in files.list_names(self._metrics) if self._metrics else ():
            # Training code may have made a folder there, or removes files itself.
            with suppress(OSError):
                Path(self._metrics, name).unlink()


def _states(programs: Path) -> set[tuple[str, int, int]]:
    """Return the folders and files of the programs, each with its number and time of change.

    Only the kernel sets that time. A file that is added or removed changes its folder's.
    """
    found = set()
    # In pods, files of this name keep Python from writing what it has compiled.
    below = [path for path in programs.rglob("*") if "__pycache__" not in path.parts]
    for path in (programs, *below):
        with suppress(OSError):
            state = path.lstat()
            found.add((str(path), state.st_ino, state.st_ctime_ns))
    return found


def _children(parent: int) -> Iterator[tuple[int, str]]:
    """Yield the number of each child that runs, and when it was started."""
    for pid, state, its_parent, _ in processes.all_processes():
        if its_parent == parent and state not in "ZX":
            with suppress(OSError):
                yield pid, processes.read_stat(pid)[STARTED]
