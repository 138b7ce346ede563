"""Cores, CPUs and ranks of a node, and what a node reserves for itself.

CPUs are in thousandths, memory in bytes.
"""

from __future__ import annotations

from hvdchart.quantity import GI, MI
from hvdchart.spec.model import NodeGroup, Spec

# The DaemonSets (network, proxy, monitoring) that any node runs, and one master of ours.
_DAEMONS_CPU = 500
_DAEMONS_MEMORY = 512 * MI
MASTER_CPU = 100
MASTER_MEMORY = 256 * MI


def cores(group: NodeGroup) -> int:
    """Physical cores of a node; 0 when the spec does not say."""
    return (group.sockets or 1) * (group.cores_per_socket or 0)


def node_cpu(group: NodeGroup) -> int:
    """All CPUs of a node as Kubernetes counts them, hyperthreads included; 0 when not said."""
    return cores(group) * (group.threads_per_core or 1) * 1000


def reserved_cores(group: NodeGroup) -> int:
    """Whole cores that the static CPU manager keeps from pods; 0 without that policy."""
    if group.cpu_manager != "static":
        return 0
    threads = group.threads_per_core or 1
    return -(-reserved_cpu(group) // (1000 * threads))


def reserved_cpu(group: NodeGroup) -> int:
    kept = group.reserved.cpu
    return node_reserve_cpu(node_cpu(group)) if kept is None else kept


def node_reserve_cpu(millis: int) -> int:
    """CPUs that a node's own daemons keep: 6 % of the first, 1 % of the second, 0.5 % of the next
    two, 0.25 % of the rest (the table GKE publishes), and the DaemonSets' and the master's share.
    """
    steps = ((1000, 600), (1000, 100), (2000, 50), (millis, 25))
    kept, left = 0, millis
    for size, share in steps:
        part = min(left, size)
        kept += part * share
        left -= part
    return -(-kept // 10_000) + _DAEMONS_CPU + MASTER_CPU


def node_reserve_memory(size: int) -> int:
    """Memory that a node's own daemons keep: 25 % of the first 4 GiB, 20 % of the next 4, 10 % of
    the next 8, 6 % of the next 112, 2 % of the rest (the table GKE publishes), 100 MiB for
    eviction, and the DaemonSets' and the master's share.
    """
    steps = ((4 * GI, 25), (4 * GI, 20), (8 * GI, 10), (112 * GI, 6), (size, 2))
    kept, left = 0, size
    for step, percent in steps:
        part = min(left, step)
        kept += part * percent
        left -= part
    return kept // 100 + 100 * MI + _DAEMONS_MEMORY + MASTER_MEMORY


def default_slots(group: NodeGroup) -> int:
    """Ranks on a node by rule: one for each GPU; without GPUs one for each socket."""
    return group.gpus or group.sockets or 1


def slots(group: NodeGroup, spec: Spec) -> int:
    """Ranks on a node: set in the group's tuning, or for all groups, or by rule."""
    return group.tuning.slots or spec.tuning.slots or default_slots(group)
