"""A worker serves one master at a time: the one whose requests have the highest fence number.

The number is in the agent's memory, and only a master with its certificate changes it. The first
request with a higher number ends all processes that earlier requests started in this worker, before
it starts its own program. The agent refuses a request with a lower number. Therefore an earlier
attempt or a replaced master cannot write to the run's output during the current attempt.

Training code may run as the user that owns the programs of the chart, which each container unpacks
(files/unpack.py). If training code changes a program, the container ends before a later attempt
could run that program.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Iterator

from hvd_pods.pod import processes
from hvd_pods.rank import warm_client
from hvd_pods.shared import files
from hvd_pods.shared.errors import RunError
from hvd_pods.shared.paths import PROGRAMS

# The deadline in seconds for killed processes to end: a process may wait for a file server. The
# second number is the deadline for the guard of a warm rank, which loses its client, to end the
# rank and then itself.
KILLED_END_TIMEOUT_SECONDS = 30.0
GUARDS_END_TIMEOUT_SECONDS = 5.0


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
        end_timeout_seconds: float = KILLED_END_TIMEOUT_SECONDS,
        guards_timeout_seconds: float = GUARDS_END_TIMEOUT_SECONDS,
    ) -> None:
        self.number = 0
        self._end_timeout_seconds = end_timeout_seconds
        self._guards_timeout_seconds = guards_timeout_seconds
        self._main = main
        self._metrics = metrics_folder
        # The deadline for the end of processes of earlier attempts; None when there are none.
        self._until: float | None = None
        # Whether such processes were still running at the deadline.
        self._has_failed = False
        # The processes that the main program itself started, before any training code ran.
        self._own = set(_children(main))
        self._programs = _states(Path(PROGRAMS))

    @property
    def is_closed(self) -> bool:
        """Whether requests must wait until the processes of earlier attempts have ended."""
        return self._until is not None

    def admit(self, number: int) -> bool:
        """Check the number of a request; 0 is the current one. Returns whether the number is new.

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
            self._until = time.monotonic() + self._end_timeout_seconds
        return is_new

    def end_older(self) -> bool:
        """Kill processes of earlier attempts. Returns whether they have ended; if not, call again.

        Raises FenceError when they do not end in time, and ChangedProgramsError when they have
        changed a program of the chart: then no program may start here before the container
        restarts.
        """
        for _ in processes.ended_children():
            continue
        left = self._kill()
        # Orphans become children of this process, or of the main program.
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
        # A second scan finds the child of a process that ended during the first scan.
        for orphan in self._orphans() or self._orphans():
            started |= {orphan, *processes.descendants(orphan)}
        guards = set(self._guards())
        killed = set(started)
        waited = self._end_timeout_seconds - ((self._until or 0.0) - time.monotonic())
        if waited > self._guards_timeout_seconds:
            for guard in guards:
                killed |= {guard, *processes.descendants(guard)}
        for pid in killed:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return started | guards

    def _orphans(self) -> set[int]:
        """Return processes whose parents were killed, such as guards that training code killed."""
        return {pid for pid, _ in set(_children(self._main)) - self._own}

    def _guards(self) -> Iterator[int]:
        """Yield the guards of warm ranks, which are descendants of the process that imports."""
        for pid in processes.descendants(self._main):
            with suppress(OSError):
                if files.read(f"/proc/{pid}/comm").strip() == warm_client.GUARD.encode():
                    yield pid

    def _forget_progress(self) -> None:
        """Remove the metrics files of earlier attempts: their ranks may be on other workers now."""
        for name in files.list_names(self._metrics) if self._metrics else ():
            # Training code may have made a folder there, or removes files itself.
            with suppress(OSError):
                Path(self._metrics, name).unlink()


def _states(programs: Path) -> set[tuple[str, int, int]]:
    """Return the folders and files of the programs, each with its number and time of change.

    Only the kernel sets that time. A file that is added or removed changes its folder's.
    """
    states = set()
    # In pods, files with this name prevent Python from writing bytecode.
    below = [path for path in programs.rglob("*") if "__pycache__" not in path.parts]
    for path in (programs, *below):
        with suppress(OSError):
            state = path.lstat()
            states.add((str(path), state.st_ino, state.st_ctime_ns))
    return states


def _children(parent: int) -> Iterator[tuple[int, str]]:
    """Yield the process ID of each running child, and its start time."""
    for process in processes.all_processes():
        if process.parent == parent and not process.has_ended:
            yield process.pid, process.began
