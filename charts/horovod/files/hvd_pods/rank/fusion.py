"""How many bytes of gradients Horovod sends at once over MPI where nobody set it.

Horovod copies tensors into a buffer of 128 MiB, sums it and copies them back. Two ranks of one host
summed ResNet-50's gradients in 74 ms so, and in 36 ms with a buffer of 1 MiB, because a tensor that
does not fit is summed where it is and the others stay in the processor's cache; over a link of
10 Gbit/s in 130 and 91 ms (docs/performance.md). MPI sums an array around a ring in as many pieces
as there are ranks, so that the buffer grows with them: a piece stays large beside what a message
costs. Gloo is slower with a small buffer, and NCCL has its own: both keep Horovod's.
"""

from __future__ import annotations

from collections.abc import Mapping

from hvd_pods.common import contract

THRESHOLD = "HOROVOD_FUSION_THRESHOLD"
# The chart sets it in all workers of a run, or in none: ranks that disagree cannot train. It judges
# the launcher, the devices and the images, which a rank sees of its own worker only.
BY_RANKS = contract.FUSION_BY_RANKS
PIECE = 512 << 10
LARGEST = 128 << 20


def plan_threshold(ranks: int) -> int:
    """The bytes that Horovod sends at once: 512 KiB for each rank, at most its own 128 MiB."""
    return min(LARGEST, ranks * PIECE)


def choose(ranks: int, given: Mapping[str, str]) -> dict[str, str]:
    """The variable of a rank of a run of `ranks` ranks, by its environment `given`.

    Empty where the chart does not allow it, where somebody has set the threshold or lets Horovod
    find it, and where the rank sends over something else than MPI.
    """
    operations = given.get("HOROVOD_CPU_OPERATIONS", "MPI").upper()
    is_set = THRESHOLD in given or "HOROVOD_AUTOTUNE" in given
    if BY_RANKS not in given or is_set or operations != "MPI":
        return {}
    return {THRESHOLD: str(plan_threshold(ranks))}
