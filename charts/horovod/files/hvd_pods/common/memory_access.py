"""Whether the ranks of a worker may read each other's memory.

Open MPI then copies what they exchange once, else twice, through shared memory: an allreduce of
95 MB took a quarter longer in tests/bench/bench_bare.py. The filter of containerd before 1.7
denies it (github.com/containerd/containerd/pull/7693).
"""

from __future__ import annotations

import os

from hvd_pods.common import fast_start

# This file exists if ranks may not. To look for it takes a rank less time than to try the call.
DENIED = f"{fast_start.GENERATED}/memory-access-denied"
WARNING = (
    "the ranks of a worker cannot read each other's memory: the container runtime denies "
    "process_vm_readv, as containerd before 1.7 does. An allreduce between them takes about a "
    "quarter longer"
)


def is_denied() -> bool:
    """Whether the call is denied to this process. False where that cannot be found out."""
    try:
        import ctypes

        read = ctypes.CDLL(None).process_vm_readv
    except (AttributeError, ImportError, OSError):
        return False
    nothing = ctypes.c_ulong(0)
    return bool(read(os.getpid(), None, nothing, None, nothing, nothing))


def note(slots: int) -> None:
    """Write down whether the ranks of a worker with `slots` ranks may read each other's memory."""
    if slots > 1 and is_denied():
        os.close(os.open(DENIED, os.O_CREAT))


def find_warning(local_size: int) -> str:
    """The warning for a host with `local_size` ranks of Open MPI; empty when there is none."""
    return WARNING if local_size > 1 and os.path.exists(DENIED) else ""
