"""How the end of a rank's script is reported to the launcher and to the master.

A launcher that sees one rank fail kills all others, also those that still save. So a rank that was
asked to end, and fails, reports that to the launcher only when the scripts of all ranks that were
asked have ended. The master answers when that is the case.

Hydra, the launcher of MPICH and Intel MPI, waits on for the other ranks when one ends with an exit
code and no MPI_Finalize, and they wait for it: the run would hang. The failure of a script is
therefore reported to Hydra as MPI_Abort reports one: by the abort command of PMI-1, the protocol of
the descriptor that each rank gets in PMI_FD.
"""

from __future__ import annotations

import os
import resource
import signal
import sys

from hvd_pods.common.notices import ENDED, FAILED
from hvd_pods.rank import ranks

# The exit code of a program that SIGTERM has ended.
LEFT = 128 + signal.SIGTERM
# Signals that launchers use to stop a rank.
END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def exit_code_to_report(rank: int, status: int) -> int:
    """What to report of an elastic rank's script: LEFT if it was asked to leave and ended with 0.

    At a 0, horovodrun takes the training for finished and ends it on all other workers.
    """
    script = ranks.find(rank)
    is_asked = script is not None and ranks.was_asked_to_end(script)
    return LEFT if is_asked and status == 0 else status


def report_failure(rank: int, status: int) -> None:
    """Tell the master that a rank has failed by itself: not all launchers name it, and its signal.

    `status` is its exit code or minus its signal.
    """
    script = ranks.find(rank)
    if status and script is not None and not ranks.was_asked_to_end(script):
        ranks.notify(script, kind=FAILED, status=status)


def report_end(rank: int, status: int) -> None:
    """Tell the master that a rank's script has ended, if the rank was asked to leave.

    `status` is its exit code or minus its signal. After a failure, returns when the launcher may
    know of it.
    """
    script = ranks.find(rank)
    if script is None or not script.notices or not ranks.was_asked_to_end(script):
        return
    for number in signal.valid_signals():
        # Only signals that were passed on to the script have handlers.
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL if number in END else signal.SIG_IGN)
    marker = ranks.mark_waiting()
    try:
        # The kubelet kills the worker at the end of the grace period.
        answer_within = float(os.environ.get("HVD_GRACE", "30"))
        ranks.send(script, answer_within, kind=ENDED, waits=bool(status))
    except (OSError, ValueError):
        # The master does not answer, or one of the ranks has not ended in time.
        return
    finally:
        ranks.mark_not_waiting(marker)


def abort_under_hydra(code: int) -> None:
    """End all ranks with this exit code if Hydra started this one; otherwise do nothing."""
    descriptor = os.environ.get("PMI_FD")
    if code != 0 and descriptor is not None:
        try:
            os.write(int(descriptor), f"cmd=abort exitcode={code}\n".encode())
        except BrokenPipeError:
            # Hydra is ending the run already.
            return


def finish(status: int) -> int:
    """End this process as its script ended: return the exit code, or end by the script's signal.

    Under Hydra, end the run if the rank failed; the exit code for signal N is 128 + N there.
    """
    if "PMI_FD" in os.environ:
        code = 128 - status if status < 0 else status
        abort_under_hydra(code)
        return code
    if status < 0:
        sys.stdout.flush()
        # The rank has written its core already, where it is asked for.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-status])
        os.kill(os.getpid(), -status)
    return status
