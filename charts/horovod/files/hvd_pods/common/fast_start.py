"""What the programs share that must start fast: one starts for each SSH session and each rank.

They do without pathlib, dataclasses, argparse and typing, whose import takes longer than everything
that these programs do. Therefore paths are strings here.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

# Where pods mount the package `hvd_pods`, each of its folders from a ConfigMap.
PROGRAMS = "/horovod/bin/hvd_pods"
SECRETS = "/horovod/ssh"
# The programs of ssh.image, where the values have one.
OPENSSH = "/horovod/openssh"
# An emptyDir in memory. Scripts written for older charts read `hostfile` from here.
GENERATED = "/horovod/generated"
# The user's code: mounted into the master by the chart, and unpacked in every pod.
CODE_SOURCE = "/horovod/code-source"
CODE = "/horovod/code"
# The packages that the code asks for (common/packages.py). A shell's `*` does not match the name.
PACKAGES = f"{CODE}/.packages"
# The modules for scripts.
LIBRARY = f"{PROGRAMS}/library"
# The container's environment for its SSH sessions: each entry ended by a NUL.
ENVIRONMENT = f"{GENERATED}/environment"
# The newest epoch that this worker has served.
EPOCH = f"{GENERATED}/epoch"
# The worker's main program and its own children, by their numbers (common/fence.py).
WORKER = f"{GENERATED}/worker-processes"

# The command that master/direct.py sends over SSH; worker/session.py runs it without a new Python.
START_RANKS = f"exec python3 -I -S {PROGRAMS}/rank/host.py"
# The line that master/direct.py sends to that command: the ranks go on without a master.
STAY = b"stay\n"
# The variable that tells master/direct.py for how many seconds ranks go on without a master.
STAY_WITHIN = "HVD_STAY_WITHIN"
# Where a host writes the epoch of a launch whose ranks have all ended with 0, and their number.
FINISHED = f"{GENERATED}/finished"

# linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# The Job fails at once on this code (78): another attempt cannot help.
BAD_CONFIGURATION = os.EX_CONFIG


def which(program: str) -> str | None:
    """The path of a program as shells find it, or None."""
    folders = [""] if "/" in program else os.environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        path = os.path.join(folder, program)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def read(path: str) -> bytes:
    """The content of a file. Raises OSError."""
    with open(path, "rb") as file:
        return file.read()


def list_names(folder: str | os.PathLike[str]) -> list[str]:
    """The names in a folder; empty when the folder is missing."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def read_stat(pid: int | str) -> list[str]:
    """The fields of /proc/PID/stat from the third one, the state, on. Raises OSError."""
    # The command's name, in parentheses, may have any characters.
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].decode().split()


def processes() -> Iterator[tuple[int, str, int, int]]:
    """Yield number, state, parent and session of processes; those that exit may be missing."""
    for name in list_names("/proc"):
        if name.isdigit():
            try:
                fields = read_stat(name)
            except OSError:
                continue
            yield int(name), fields[0], int(fields[1]), int(fields[3])


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
