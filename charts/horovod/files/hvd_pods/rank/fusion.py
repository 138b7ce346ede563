"""How many bytes of gradients Horovod sends at once over MPI, unless a user sets the number.

Horovod copies tensors into a buffer of 128 MiB, sums it and copies them back. Two ranks of one host
summed ResNet-50's gradients in 74 ms with this buffer, and in 36 ms with a buffer of 1 MiB: Horovod
sums a tensor that does not fit in place, and the others stay in the processor's cache. Over a link
of 10 Gbit/s, they took 130 and 91 ms (docs/performance.md). MPI sums an array around a ring in as
many pieces as there are ranks. Therefore the buffer grows with the number of ranks, so that a piece
stays large compared with the cost of a message. Gloo is slower with a small buffer, and NCCL has
its own buffer: both keep Horovod's default.
"""

from __future__ import annotations

from collections.abc import Mapping

from hvd_pods.shared import contract

THRESHOLD = "HOROVOD_FUSION_THRESHOLD"
# The chart sets it in all workers of a run, or in none: ranks that disagree cannot train. The chart
# checks the launcher, the devices and the images. A rank sees these only for its own worker.
BY_RANKS = contract.FUSION_BY_RANKS
RANK_BYTES = 512 << 10
MAX_THRESHOLD_BYTES = 128 << 20


def plan_threshold(ranks: int) -> int:
    """Return the bytes that Horovod sends at once: 512 KiB for each rank, at most 128 MiB."""
    return min(MAX_THRESHOLD_BYTES, ranks * RANK_BYTES)


def choose(ranks: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that the environment of a rank in a run of `ranks` ranks lacks.

    Return no variable if the chart does not allow it, if a user has set the threshold or lets
    Horovod find it, or if the rank does not send over MPI.
    """
    operations = environment.get("HOROVOD_CPU_OPERATIONS", "MPI").upper()
    is_set = THRESHOLD in environment or "HOROVOD_AUTOTUNE" in environment
    if BY_RANKS not in environment or is_set or operations != "MPI":
        return {}
    return {THRESHOLD: str(plan_threshold(ranks))}
