"""Ends the whole run when one of its ranks fails, with the rank's exit code, under Hydra.

Hydra (MPICH's launcher, and Intel MPI's) waits on for the other ranks when one ends with an exit
code and no MPI_Finalize, and they wait for it: the run would hang. The failure of a script is
therefore reported to Hydra as MPI_Abort reports one: by the abort command of PMI-1, the protocol of
the descriptor that each rank gets in PMI_FD.
"""

from __future__ import annotations

import os


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


def finish(status: int) -> int:
    """End the run if the rank failed. Its exit code: 128 + N when signal N ended it."""
    code = 128 - status if status < 0 else status
    abort(code)
    return code
