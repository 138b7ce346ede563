"""Knowing a process again: a number alone may have been given to another one since."""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Identity:
    """start: field 22 of /proc/PID/stat (clock ticks since boot); boot: the kernel's boot id."""

    pid: int
    start: int
    boot: str

    @staticmethod
    def of(pid: int) -> Identity:
        """Raises ProcessLookupError when there is no such process, or only its remains."""
        state, start = state_and_start(read_stat(pid))
        if state in "ZX":
            raise ProcessLookupError(f"process {pid} has ended")
        return Identity(pid, start, boot_id())

    def is_alive(self) -> bool:
        """True when this very process still runs."""
        try:
            return Identity.of(self.pid) == self
        except ProcessLookupError:
            return False

    def kill_and_wait(self) -> None:
        """Kills this process, no other, and returns once it has ended. It need not be alive, nor
        our child.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            # From here on the descriptor means whatever has the number now; is it the one that we
            # know?
            if self.is_alive():
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                ended = select.poll()
                ended.register(descriptor, select.POLLIN)
                ended.poll()
        except ProcessLookupError:
            pass  # it ended in between
        finally:
            os.close(descriptor)


def boot_id() -> str:
    return BOOT_ID.read_text().strip()


def read_stat(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"no process {pid}") from None


def state_and_start(stat: str) -> tuple[str, int]:
    """From /proc/PID/stat. The command's name, in parentheses, may itself hold spaces and
    parentheses.
    """
    fields = stat[stat.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])


def only_child(pid: int) -> int:
    """The process that `pid` has forked. Raises ProcessLookupError when there is none."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if not children:
        raise ProcessLookupError(f"process {pid} has no child")
    return int(children[0])
