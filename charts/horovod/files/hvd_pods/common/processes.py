"""The processes of a container: what runs, who started it, and how all of it ends.

Each rank starts programs that use this. Therefore it imports what takes long when it is needed
(ADR 12).
"""

from __future__ import annotations

import os

from hvd_pods.common.files import list_names, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

# linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def read_stat(pid: int | str) -> list[str]:
    """The fields of /proc/PID/stat from the third one, the state, on. Raises OSError."""
    # The command's name, in parentheses, may have any characters.
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].decode().split()


def all_processes() -> Iterator[tuple[int, str, int, int]]:
    """Yield number, state, parent and session of processes; those that exit may be missing."""
    for name in list_names("/proc"):
        if name.isdigit():
            try:
                fields = read_stat(name)
            except OSError:
                continue
            yield int(name), fields[0], int(fields[1]), int(fields[3])


def descendants(ancestor: int) -> Iterator[int]:
    """Yield the processes below `ancestor` that run, each after its parent; not zombies.

    Who kills them in this order kills a shell before the program that it waits for, so that the
    shell does not go on after the program's end.
    """
    states = {}
    children: dict[int, list[int]] = {}
    for pid, state, parent, _ in all_processes():
        states[pid] = state
        children.setdefault(parent, []).append(pid)
    below = [ancestor]
    # The list grows while it is read.
    for parent in below:
        below += children.pop(parent, [])
    yield from (pid for pid in below[1:] if states[pid] not in "ZX")


def ended_children() -> Iterator[tuple[int, int]]:
    """Reap the children that have ended: the number and the status of each."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def has_child() -> bool:
    """Whether this process has a child, also one that has ended and was not reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def end_descendants() -> None:
    """Kill all that this process has started, in whichever session and group, and wait for it.

    It must be a subreaper (PR_SET_CHILD_SUBREAPER): orphans become children of this process, so
    that none is left when it has no child. Where it is none, orphans go on.
    """
    import signal

    # A look at all processes takes long where many run, and most programs leave nothing.
    while has_child():
        for pid in list(descendants(os.getpid())):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        # The parent of one that the look has missed has ended since, so that this returns.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        for _ in ended_children():
            continue


def set_process_option(option: int, value: int) -> None:
    """prctl(2). Raises OSError; ImportError where this Python has no ctypes."""
    # Imported here because few of the programs need it.
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *(ctypes.c_ulong(number) for number in (value, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def die_with_parent(parent: int) -> None:
    """Let this process be killed when its parent dies. Raises as `set_process_option` does."""
    import signal

    set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # The parent has already exited.
        os._exit(128 + signal.SIGKILL)
