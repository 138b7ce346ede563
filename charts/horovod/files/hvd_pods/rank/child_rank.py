"""A rank that starts cold: its script is a child of the process that the launcher started.

That process reports the end of the script to the launcher at the right moment (rank/rank_end.py).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

from hvd_pods.pod import processes
from hvd_pods.pod.processes import die_with_parent
from hvd_pods.rank.rank_registry import STACK_SIGNAL
from hvd_pods.shared import contract, paths

# Python ignores these two in each of its processes.
IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
# These have an effect on this process as well, or cannot be caught.
NOT_TO_CATCH = {
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGCHLD,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
}
# A folder for PYTHONPATH, with rank/child_site.py alone.
SITE_FOLDER = f"{paths.GENERATED}/site"
# The exit code of a shell that cannot start a program.
RANK_NOT_STARTED = 126


def run(command: Sequence[str], started: Callable[[int], None] = lambda pid: None) -> int:
    """Run a command to its end; return its exit code, or minus the number of its signal.

    The child calls `started` with its process ID before the command begins. If the command cannot
    start, return RANK_NOT_STARTED, and write the reason to standard error. Afterwards, SIGTERM ends
    this process, and most other signals still do not (rank/rank_end.py).
    """
    parent = os.getpid()
    with suppress(ImportError, OSError):
        # The script's orphans become children of this process, and end with it.
        processes.set_process_option(processes.PR_SET_CHILD_SUBREAPER, 1)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    # If the launcher ignores SIGCHLD, this process cannot wait for the end of a child.
    of_children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    script = os.fork()
    if script == 0:
        try:
            with suppress(ImportError, OSError):
                die_with_parent(parent)
            started(os.getpid())
            for number in IGNORED_BY_PYTHON:
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, of_children)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.execvp(command[0], [*command])
        except OSError as problem:
            print(f"[hvd] error: cannot start {command[0]}: {problem}", file=sys.stderr, flush=True)
        finally:
            os._exit(RANK_NOT_STARTED)

    def pass_on(number: int, frame: FrameType | None) -> None:
        # Hydra asks this process to end; other launchers send signals to the group of both.
        if number == signal.SIGTERM and "PMI_FD" in os.environ:
            os.kill(script, number)

    for number in signal.valid_signals() - NOT_TO_CATCH:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    # The script is not reaped yet, so that no other process can reuse its process ID.
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)) and ended.si_pid != script:
        os.waitpid(ended.si_pid, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _, status = os.waitpid(script, 0)
    # A launcher waits for all processes that hold the rank's output.
    processes.end_descendants()
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def prepare_python(program: str, rank: int, descriptor: int) -> None:
    """Let Python report to the master the exception that ends this rank (rank/child_site.py).

    At STACK_SIGNAL, Python writes the script's stack to the descriptor. Call this in the script's
    process. Programs other than Python start unchanged. So does Python when the memory volume of
    this worker is full.
    """
    if not os.path.basename(program).startswith("python"):
        return
    try:
        module = f"{paths.PROGRAMS}/rank/child_site.py"
        # Another rank may have created the folder or the link.
        with suppress(FileExistsError):
            os.mkdir(SITE_FOLDER)
        with suppress(FileExistsError):
            os.symlink(module, os.path.join(SITE_FOLDER, "sitecustomize.py"))
    except OSError:
        # The rank runs without notices.
        return
    os.set_inheritable(descriptor, True)
    os.environ[contract.SITE] = f"{descriptor} {int(STACK_SIGNAL)} {rank}"
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{SITE_FOLDER}{os.pathsep}{path}" if path else SITE_FOLDER
