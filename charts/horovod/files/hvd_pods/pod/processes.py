"""The processes of a container: lists them, finds their parents, and ends all of them.

Each rank starts programs that use this module. Therefore it imports slow modules only on use (ADR
12).
"""

from __future__ import annotations

import os
from collections import namedtuple

from hvd_pods.shared import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

# linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class ProcessStat(
    namedtuple("ProcessStat", ["pid", "state", "parent", "session", "cpu_ticks", "began"])
):
    """A process as /proc/PID/stat describes it; `state` is one letter (proc(5)).

    `cpu_ticks` is the CPU time of the process and of the children that it has waited for, in clock
    ticks. `began` is the start time of the process, which distinguishes it from another process
    with the same number.
    """

    @property
    def has_ended(self) -> bool:
        """Whether the process is a zombie, or is being removed."""
        return self.state in ("Z", "X")


def read_stat(pid: int | str) -> ProcessStat:
    """Read /proc/PID/stat. Raises OSError for a process that is gone."""
    # The command's name, in parentheses, may have any characters. The third field follows it.
    fields = files.read(f"/proc/{pid}/stat").rpartition(b")")[2].decode().split()
    return ProcessStat(
        pid=int(pid),
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        # In proc(5): utime, stime, cutime and cstime.
        cpu_ticks=sum(map(int, fields[11:15])),
        began=fields[19],
    )


def all_processes() -> Iterator[ProcessStat]:
    """Yield all processes; exiting ones may be missing."""
    for name in files.list_names("/proc"):
        if name.isdigit():
            try:
                yield read_stat(name)
            except OSError:
                continue


def descendants(ancestor: int) -> Iterator[int]:
    """Yield the running processes below `ancestor`, each after its parent; not zombies.

    A caller that kills them in this order kills a shell before the program that it waits for.
    Otherwise, the shell would go on after the program's end.
    """
    stats = {}
    children: dict[int, list[int]] = {}
    for process in all_processes():
        stats[process.pid] = process
        children.setdefault(process.parent, []).append(process.pid)
    below = [ancestor]
    # The list grows during the iteration.
    for parent in below:
        below += children.pop(parent, [])
    yield from (pid for pid in below[1:] if not stats[pid].has_ended)


def ended_children() -> Iterator[tuple[int, int]]:
    """Reap the children that have ended; yield the number and the status of each."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def has_child() -> bool:
    """Return whether this process has a child, including one that has ended and is not reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def end_descendants() -> None:
    """Kill all processes that this process started, in any session and group, and wait for them.

    This process must be a subreaper (PR_SET_CHILD_SUBREAPER): orphans become its children, so that
    no process is left when it has no child. If it is not a subreaper, orphans go on.
    """
    import signal

    # A scan of all processes is slow if many run, and most programs leave no process behind.
    while has_child():
        for pid in list(descendants(os.getpid())):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        # A process that the scan missed has lost its parent since, and is a child now: this
        # returns.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        for _ in ended_children():
            continue


def set_process_option(option: int, value: int) -> None:
    """Call prctl(2). Raises OSError; ImportError where this Python has no ctypes."""
    # Imported here because few of the programs need it.
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *(ctypes.c_ulong(number) for number in (value, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent dies. Raises as `set_process_option`."""
    import signal

    set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # The parent has already exited.
        os._exit(128 + signal.SIGKILL)
