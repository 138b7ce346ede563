"""Graceful termination: a terminating pod lets its ranks save until the kubelet kills it.

Kubernetes sends SIGTERM to the pod's main program when the pod is deleted or evicted, or its node
is drained or shut down. A worker then sends SIGTERM to its ranks. Run as a program in a worker,
this module does the same for a master that is asked to end.
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
from hvd_pods.pod import processes, ranks_program
from hvd_pods.rank import rank_registry
from hvd_pods.shared import contract, files, notice_kinds, untrusted
from hvd_pods.worker.kept_states import find_kept

# After the ranks end, the launcher's daemon has the first number of seconds to report how they
# ended. After the daemon ends, the agent has the second number to send its output.
DAEMON_REPORT_TIMEOUT_SECONDS = 10.0
OUTPUT_SEND_TIMEOUT_SECONDS = 1.0
# Seconds between two checks for running ranks. SIGCHLD reports the end of a child at once.
DRAIN_POLL_INTERVAL_SECONDS = 0.2
# The share of the grace period after which the worker saves the kept state of running ranks.
RANKS_SHARE = 0.5


def drain(
    agent: subprocess.Popen[bytes],
    grace: float,
    wait: Callable[[], None],
    save: Callable[[bool], None],
) -> None:
    """Return when no rank is left in this worker, and no agent connection of a launcher.

    `wait` waits for a moment, and reaps the processes that have ended. `save` begins to save the
    state that is kept in memory, unless it has begun before; its argument says whether no rank is
    left. The kubelet kills a worker that does not end in `grace` seconds.
    """
    save_at = time.monotonic() + RANKS_SHARE * grace
    # No other attempt may begin here: the agent stops listening, and ends with its last program.
    agent.terminate()
    notified: set[rank_registry.RankScript] = set()
    # If the master does not respond, each further notice would cost seconds of the grace period.
    is_heard = True
    # Before the first rank is found, there is no report to wait for.
    give_up_at = 0.0
    while True:
        scripts = list(rank_registry.running())
        if scripts or rank_registry.is_any_waiting():
            give_up_at = time.monotonic() + DAEMON_REPORT_TIMEOUT_SECONDS
        # Notify the master before a rank ends: the termination is the cause of the attempt's end,
        # and the launcher waits for the other ranks.
        for script in scripts:
            if script not in notified and is_heard:
                notified.add(script)
                is_heard = rank_registry.notify(script, kind=notice_kinds.LEAVING, seconds=grace)
        for script in scripts:
            rank_registry.ask_to_end(script)
        if not scripts or time.monotonic() > save_at:
            save(not scripts)
        left = list(processes.descendants(agent.pid))
        if not scripts and all(map(_is_own, left)):
            # The master follows the progress until the launch ends.
            give_up_at = min(give_up_at, time.monotonic() + OUTPUT_SEND_TIMEOUT_SECONDS)
        if time.monotonic() > give_up_at or not (scripts or agent.returncode is None):
            return
        wait()


def _is_own(pid: int) -> bool:
    """Return whether a process is a fork of the agent or a worker's program, or has just ended."""
    with suppress(OSError):
        return b"/hvd_pods/worker/" in files.read(f"/proc/{pid}/cmdline")
    return True


def main() -> int:
    """Ask the ranks of this worker to end, for a master that is asked to end; print their number.

    With the argument `look`, print the number of ranks that need no request to end because they may
    stay, then the fence number of a launch whose ranks on this worker have all finished, and their
    number (rank/worker_ranks.py). With `kept`, print the number of ranks that lose only their
    current step if they are killed now, and whose run can continue with another number of ranks.
    """
    scripts = list(rank_registry.running())
    folder = find_kept(os.environ.get(contract.RUN_ID, ""))
    if sys.argv[1:] == ["kept"]:
        # Imported here: the worker's main program imports this module, and the library imports
        # slowly.
        from hvd_pods.worker.save_states import fits_any_number

        print(len(scripts) if folder and fits_any_number(folder) else 0)
        return 0
    if sys.argv[1:] == ["look"]:
        # A rank without a handler saves nothing at SIGTERM.
        saving = (
            rank_registry.has_signal(script.pid, signal.SIGTERM, "SigCgt") for script in scripts
        )
        print(sum(not saves for saves in saving) if folder else 0, end=" ")
        with suppress(OSError):
            print(
                untrusted.one_line(
                    untrusted.read_file(ranks_program.FINISHED_FILE).decode("latin-1")
                )
            )
        return 0
    for script in scripts:
        if not rank_registry.was_asked_to_end(script):
            rank_registry.notify(script, kind=notice_kinds.ASKED)
    for script in scripts:
        rank_registry.ask_to_end(script)
    print(len(scripts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
