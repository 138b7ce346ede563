"""Ranks, cores and CPUs of a node, and what it reserves for its daemons.

CPUs are in thousandths, memory in bytes.
"""

from __future__ import annotations

from hvdchart.quantity import GI, MI
from hvdchart.spec.model import NodeGroup, Spec

# Requests of the DaemonSets (network, proxy, monitoring) that most nodes run.
_DAEMONS_CPU = 500
_DAEMONS_MEMORY = 512 * MI
# Requests of the run's master, which may be scheduled to any node.
MASTER_CPU = 100
MASTER_MEMORY = 256 * MI


def slots(group: NodeGroup, spec: Spec) -> int:
    """Ranks on a node: from the group's tuning, else from the spec's, else by rule."""
    return group.tuning.slots or spec.tuning.slots or default_slots(group)


def default_slots(group: NodeGroup) -> int:
    """Ranks on a node by rule: one per GPU; without GPUs one per socket."""
    return group.gpus or group.sockets or 1


def cores(group: NodeGroup) -> int:
    """Physical cores of a node; 0 when the spec does not give them."""
    return (group.sockets or 1) * (group.cores_per_socket or 0)


def node_cpu(group: NodeGroup) -> int:
    """All CPUs of a node as Kubernetes counts them, with hyperthreads; 0 when not given."""
    return cores(group) * (group.threads_per_core or 1) * 1000


def reserved_cpu(group: NodeGroup) -> int:
    """CPUs that a node keeps from workers: `reserved.cpu`, or `node_reserve_cpu` by default."""
    given = group.reserved.cpu
    return node_reserve_cpu(node_cpu(group)) if given is None else given


def reserved_cores(group: NodeGroup) -> int:
    """Whole cores that the static CPU manager keeps from pods; 0 without that policy."""
    if group.cpu_manager != "static":
        return 0
    threads = group.threads_per_core or 1
    return -(-reserved_cpu(group) // (1000 * threads))


def node_reserve_cpu(millis: int) -> int:
    """CPUs that a node with `millis` CPUs keeps for its daemons, and for the master.

    6 % of the first CPU, 1 % of the second, 0.5 % of the next two and 0.25 % of the rest, which is
    the table that GKE publishes, and the requests of the DaemonSets and the master.
    """
    steps = ((1000, 600), (1000, 100), (2000, 50), (millis, 25))
    return -(-_sum_of_shares(millis, steps) // 10_000) + _DAEMONS_CPU + MASTER_CPU


def node_reserve_memory(size: int) -> int:
    """Memory that a node with `size` bytes keeps for its daemons, and for the master.

    25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % of the next 112, 2 % of the
    rest and 100 MiB for eviction, which is the table that GKE publishes, and the requests of the
    DaemonSets and the master.
    """
    steps = ((4 * GI, 25), (4 * GI, 20), (8 * GI, 10), (112 * GI, 6), (size, 2))
    return _sum_of_shares(size, steps) // 100 + 100 * MI + _DAEMONS_MEMORY + MASTER_MEMORY


def _sum_of_shares(amount: int, steps: tuple[tuple[int, int], ...]) -> int:
    """The sum over (size, share) steps of `amount`, taken in order: part of the step x share."""
    total = 0
    for size, share in steps:
        part = min(amount, size)
        total += part * share
        amount -= part
    return total
