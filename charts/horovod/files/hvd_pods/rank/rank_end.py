"""Reports the end of a rank's script to the launcher and to the master.

A launcher that sees one rank fail kills all others, including those that still save. Therefore a
rank that was asked to end, and fails, reports its failure to the launcher only after the scripts of
all ranks that were asked have ended. The master responds at that moment.

When a rank ends with an exit code and without MPI_Finalize, Hydra, the launcher of MPICH and Intel
MPI, continues to wait for the other ranks. They wait for that rank, and the run would hang.
Therefore the failure of a script is reported to Hydra in the way of MPI_Abort: by the abort command
of PMI-1, the protocol of the descriptor that each rank gets in PMI_FD.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress

from hvd_pods.pod.notices import NOTICE_SEND_TIMEOUT_SECONDS
from hvd_pods.rank import rank_registry
from hvd_pods.shared import contract
from hvd_pods.shared.notice_kinds import ENDED, FAILED, FINISHED

# Signals that launchers use to stop a rank.
END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def report(rank: int, status: int) -> None:
    """Report to the master how a rank's script has ended: an exit code, or minus a signal.

    After it returns, this process may report the end to the launcher, too.
    """
    script = rank_registry.find(rank)
    if script is None or not rank_registry.was_asked_to_end(script):
        if script and status:
            # Report before the launcher ends the other ranks: not all launchers name a rank and its
            # signal.
            rank_registry.notify(script, kind=FAILED, status=status, **_memory(status))
        elif script:
            # This end may cause failures of other ranks. There is no master while ranks go on
            # without one.
            with suppress(OSError, ValueError):
                rank_registry.send(script, NOTICE_SEND_TIMEOUT_SECONDS, kind=FINISHED)
    elif script.notices:
        _report_end(script, status)


def _memory(status: int) -> dict[str, float]:
    """Return the container's memory limit in MiB, if the kernel killed the rank because of it."""
    if status != -signal.SIGKILL:
        return {}
    # Imported here: few ranks need it.
    from hvd_pods.shared import container_memory

    limit = container_memory.limit()
    if limit is None or not container_memory.count_killed():
        return {}
    return {"limit": limit / (1 << 20)}


def _report_end(script: rank_registry.RankScript, status: int) -> None:
    """Report to the master; after a failure, wait until the launcher may know of it.

    The timeout for the master's response is the pod's grace period, HVD_GRACE_SECONDS.
    """
    for number in signal.valid_signals():
        # Only signals that were passed on to the script have handlers.
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL if number in END_SIGNALS else signal.SIG_IGN)
    # The kubelet kills the worker at the end of the grace period.
    answer_timeout_seconds = float(os.environ.get(contract.GRACE_SECONDS, "30"))
    # An error means that the master did not respond, or that a rank did not end in time.
    with rank_registry.waiting(), suppress(OSError, ValueError):
        rank_registry.send(script, answer_timeout_seconds, kind=ENDED, waits=bool(status))


def abort_under_hydra(code: int) -> None:
    """End all ranks with this exit code if Hydra started this one; otherwise do nothing."""
    descriptor = os.environ.get("PMI_FD")
    if code != 0 and descriptor is not None:
        try:
            os.write(int(descriptor), f"cmd=abort exitcode={code}\n".encode())
        except BrokenPipeError:
            # Hydra is already ending the run.
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
        # The rank has already written its core file, if core files are enabled.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-status])
        os.kill(os.getpid(), -status)
    return status
