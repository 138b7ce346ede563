"""Ends the whole run when one of its ranks fails, with the rank's exit code, under Hydra.

Hydra (MPICH's launcher, and Intel MPI's) waits on for the other ranks when one ends with an exit
code and no MPI_Finalize, and they wait for it: the run would hang. The rank is therefore a child,
whose failure is reported to Hydra as MPI_Abort reports one: by the abort command of PMI-1, the
protocol of the descriptor that each rank gets in PMI_FD.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Callable, Sequence

# linux/prctl.h: the signal that a process gets when its parent dies.
PR_SET_PDEATHSIG = 1


def abort_command(code: int) -> bytes:
    """PMI-1's command to end all ranks with this exit code."""
    return f"cmd=abort exitcode={code}\n".encode()


def abort(code: int) -> None:
    """End all ranks if Hydra started this one; otherwise do nothing."""
    descriptor = os.environ.get("PMI_FD")
    if code != 0 and descriptor is not None:
        try:
            os.write(int(descriptor), abort_command(code))
        except BrokenPipeError:
            # Hydra is ending the run already.
            return


def supervise(command: Sequence[str], started: Callable[[int], None] = lambda pid: None) -> int:
    """Run a rank's script to its end and return its exit code: 128 + N when signal N ended it.

    `started` gets its process ID.
    """
    # Every rank imports this module, and only Hydra's, started cold, come here.
    import ctypes
    import subprocess

    libc = ctypes.CDLL(None)
    process = subprocess.Popen(
        command,
        pass_fds=[int(os.environ["PMI_FD"])],
        # Hydra kills this process only. It has one thread, so that this is safe.
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509
    )

    started(process.pid)

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    return finish(process.wait())


def finish(status: int) -> int:
    """End the run if the rank failed. Its exit code: 128 + N when signal N ended it."""
    code = 128 - status if status < 0 else status
    abort(code)
    return code
