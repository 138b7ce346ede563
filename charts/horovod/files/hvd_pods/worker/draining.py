"""Graceful termination: a pod is asked to end, and its ranks may save until it is killed.

Kubernetes sends SIGTERM to the pod's main program when the pod is deleted or evicted, or its node
is drained or shut down. In a worker, the ranks get it next. Run as a program in a worker, this does
the same for a master that is asked to end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.common import contract, files, hostile, notices, processes, ranks_program
from hvd_pods.rank import rank_registry
from hvd_pods.worker.kept_states import find_kept

# Seconds after the end of the ranks in which the launcher's daemon reports how they ended, and
# after its own end, in which the agent sends its output.
REPORT_WITHIN = 10.0
SEND_WITHIN = 1.0
# Seconds between two checks of what still runs; the end of a child is noticed at once.
LOOK_EVERY = 0.2
# The share of the grace period after which the worker saves what is kept of ranks that still run.
RANKS_SHARE = 0.5


def leave(
    agent: subprocess.Popen[bytes],
    grace: float,
    wait: Callable[[], None],
    save: Callable[[bool], None],
) -> None:
    """Return when no rank is left in this worker, and no agent connection of a launcher.

    `wait` waits for a moment, and reaps the processes that have ended. `save` begins to save what
    is kept in memory, unless that was begun before; it gets whether no rank is left. The kubelet
    kills a worker that does not end in `grace` seconds.
    """
    save_at = time.monotonic() + RANKS_SHARE * grace
    # No other attempt may begin here: the agent listens no longer, and ends with its last program.
    agent.terminate()
    notified: set[rank_registry.Script] = set()
    # A master that does not answer would cost each rank seconds of the grace period.
    is_heard = True
    # Until a rank has been found, there is nothing to be reported.
    give_up_at = 0.0
    while True:
        scripts = list(rank_registry.running())
        if scripts or rank_registry.is_any_waiting():
            give_up_at = time.monotonic() + REPORT_WITHIN
        # The master must know before a rank ends: this is the cause of the attempt's end, and the
        # launcher waits for the other ranks.
        for script in scripts:
            if script not in notified and is_heard:
                notified.add(script)
                is_heard = rank_registry.notify(script, kind=notices.LEAVING, seconds=grace)
        for script in scripts:
            rank_registry.ask_to_end(script)
        if not scripts or time.monotonic() > save_at:
            save(not scripts)
        left = list(processes.descendants(agent.pid))
        if not scripts and all(map(_is_own, left)):
            # The master follows the progress until the launch ends.
            give_up_at = min(give_up_at, time.monotonic() + SEND_WITHIN)
        if time.monotonic() > give_up_at or not (scripts or agent.returncode is None):
            return
        wait()


def _is_own(pid: int) -> bool:
    """Whether a process is a fork of the agent or a worker's own program, or has just ended."""
    with suppress(OSError):
        return b"/hvd_pods/worker/" in files.read(f"/proc/{pid}/cmdline")
    return True


def main() -> int:
    """In a worker: ask its ranks to end, for a master that is asked to end; print their number.

    With the argument `look`, print how many need not be asked because they may stay, then the fence
    number of a launch whose ranks on this worker have all finished, and their number
    (rank/worker_ranks.py). With `kept`, print how many lose nothing but the step that they are at
    if they are killed now, and another number of ranks goes on.
    """
    scripts = list(rank_registry.running())
    kept = find_kept(os.environ.get(contract.RUN_ID, ""))
    if sys.argv[1:] == ["kept"]:
        # Not above: the worker's main program imports this module, and the library imports slowly.
        from hvd_pods.worker.saving import fits_any_number

        print(len(scripts) if kept and fits_any_number(kept) else 0)
        return 0
    if sys.argv[1:] == ["look"]:
        # A rank without a handler would save nothing at SIGTERM.
        saving = (
            rank_registry.has_signal(script.pid, signal.SIGTERM, "SigCgt") for script in scripts
        )
        print(sum(not saves for saves in saving) if kept else 0, end=" ")
        with suppress(OSError):
            print(hostile.one_line(hostile.read_file(ranks_program.FINISHED).decode("latin-1")))
        return 0
    for script in scripts:
        if not rank_registry.was_asked_to_end(script):
            rank_registry.notify(script, kind=notices.ASKED)
    for script in scripts:
        rank_registry.ask_to_end(script)
    print(len(scripts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
