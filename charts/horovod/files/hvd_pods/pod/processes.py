"""The processes of a container: lists them, finds their parents, and ends all of them.

Each rank starts programs that use this module. Therefore it imports slow modules only on use (ADR
12).
"""

from __future__ import annotations

import os

from hvd_pods.shared import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

# linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def read_stat(pid: int | str) -> list[str]:
    """Return the fields of /proc/PID/stat, from the third one, the state. Raises OSError."""
    # The command's name, in parentheses, may have any characters.
    return files.read(f"/proc/{pid}/stat").rpartition(b")")[2].decode().split()


def all_processes() -> Iterator[tuple[int, str, int, int]]:
    """Yield number, state, parent and session of processes; exiting ones may be missing."""
    for name in files.list_names("/proc"):
        if name.isdigit():
            try:
                fields = read_stat(name)
            except OSError:
                continue
            yield int(name), fields[0], int(fields[1]), int(fields[3])


def descendants(ancestor: int) -> Iterator[int]:
    """Yield the running processes below `ancestor`, each after its parent; not zombies.

    A caller that kills them in this order kills a shell before the program that it waits for.
    Otherwise, the shell would go on after the program's end.
    """
    states = {}
    children: dict[int, list[int]] = {}
    for pid, state, parent, _ in all_processes():
        states[pid] = state
        children.setdefault(parent, []).append(pid)
    below = [ancestor]
    # The list grows during the iteration.
    for parent in below:
        below += children.pop(parent, [])
    yield from (pid for pid in below[1:] if states[pid] not in "ZX")


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
