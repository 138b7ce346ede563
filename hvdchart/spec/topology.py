"""Ranks, cores and CPUs of a node, and the resources that it reserves for its daemons.

CPUs are in thousandths, memory in bytes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from hvdchart.quantity import GI, MI
from hvdchart.spec.model import NodeGroup, Spec
from hvdchart.spec.yaml_tree import Plain

# Requests of the DaemonSets (network, proxy, monitoring) that most nodes run.
_DAEMONS_MILLICPU = 500
_DAEMONS_MEMORY_BYTES = 512 * MI
# Requests of the run's master, which may be scheduled to any node.
MASTER_MILLICPU = 100
MASTER_MEMORY_BYTES = 256 * MI
# The memory that TensorFlow with Horovod takes on import, in each rank that starts cold, and in the
# process from which the other ranks are forked. Measured: docs/performance.md.
_FRAMEWORK_IMPORT_BYTES = 200 * MI
# Requests of the pods beside a worker: the DaemonSets and the master.
PODS_MILLICPU = _DAEMONS_MILLICPU + MASTER_MILLICPU
# A word in labels and taints of nodes that the provider may reclaim: cloud.google.com/gke-spot,
# kubernetes.azure.com/scalesetpriority=spot, eks.amazonaws.com/capacityType=SPOT, gke-preemptible,
# lifecycle=Ec2Spot. Not in team=spotify or pool=non-spot.
_SPOT = re.compile(
    r"(^|(?<!\bno)(?<!\bnon)[/_.=-])((ec2)?spot|preemptible)(?=[_.=-]|$)", re.IGNORECASE
)
_MIG = (
    "MIG slices: NCCL refuses two ranks on one GPU; write gpus: 1, so that each worker has one "
    "slice, or reduce over Gloo"
)
_SHARED = (
    "shared GPUs: NCCL refuses two ranks on one GPU, and a worker may get two shares of one; write "
    "gpus: 1, or use nodes whose GPUs are not shared"
)
# The variable that lets NCCL 2.30 and newer connect two ranks on one GPU.
NCCL_DUPLICATES = "NCCL_MULTI_RANK_GPU_ENABLE"


def warn_of_duplicates(resource: str, labels: Mapping[str, str]) -> str:
    """Warn if several ranks of a node may share a GPU; empty if each rank has its own.

    `labels` are those of NVIDIA's gpu-feature-discovery, of the node or of its selector. They
    describe shares and slices that are offered as nvidia.com/gpu.
    """
    product = labels.get("nvidia.com/gpu.product", "")
    if resource.startswith("nvidia.com/mig-") or "-MIG-" in product:
        return _MIG
    is_named_so = resource.endswith(".shared") or product.endswith("-SHARED")
    strategy = labels.get("nvidia.com/gpu.sharing-strategy", "none")
    return _SHARED if is_named_so or strategy != "none" else ""


def drop_spot(group: NodeGroup) -> NodeGroup:
    """Return a group without selectors and tolerations of nodes that the provider may reclaim.

    A nodeAffinity that requires such nodes is left out completely. A group without any is
    equal to the result.
    """
    affinity = dict(group.affinity)
    if _asks_for_spot(affinity.get("nodeAffinity")):
        del affinity["nodeAffinity"]
    selector = {
        key: value for key, value in group.node_selector.items() if not _is_spot(key, value)
    }
    tolerations = [
        toleration
        for toleration in group.tolerations
        if not _is_spot(toleration.taint, toleration.value)
    ]
    return dataclasses.replace(
        group, node_selector=selector, tolerations=tuple(tolerations), affinity=affinity
    )


def _is_spot(key: Plain, value: Plain) -> bool:
    """Return whether a node with this label or taint is one that the provider may reclaim."""
    return str(value).lower() not in ("false", "no") and bool(_SPOT.search(f"{key}={value}"))


def _asks_for_spot(part: Plain) -> bool:
    """Return whether an expression in a part of a nodeAffinity selects such nodes."""
    if isinstance(part, list):
        return any(map(_asks_for_spot, part))
    if not isinstance(part, dict):
        return False
    if part.get("operator") in ("In", "Exists"):
        return any(_is_spot(part.get("key"), value) for value in part.get("values") or [""])
    return any(map(_asks_for_spot, part.values()))


def slots(group: NodeGroup, spec: Spec) -> int:
    """Return the ranks on a node: from values.worker.slots, else from tuning, else by rule."""
    number = override(spec, "slots")
    return number or group.tuning.slots or spec.tuning.slots or default_slots(group)


def workers(group: NodeGroup, spec: Spec) -> int:
    """Return the workers of a group: from values.worker.number, else its nodes."""
    return override(spec, "number") or group.count


def override(spec: Spec, name: str) -> int | None:
    """Return the number at `name` in the spec's values.worker, which replaces the only group's.

    Returns None without one, and for several groups: they become workerGroups, whose own numbers
    count.
    """
    if len(spec.nodes) != 1:
        return None
    value = spec.worker_value(name)
    least = 0 if name == "spares" else 1
    # The chart's schema later checks other values. For Python, True is an integer; for Helm, 2.0 is
    # 2.
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if value >= least and value == value // 1 else None
    return None


def default_slots(group: NodeGroup) -> int:
    """Return the ranks on a node by rule: one per GPU; without GPUs one per NUMA node."""
    return group.gpus or (group.sockets or 1) * (group.numa_per_socket or 1)


def socket_cores(group: NodeGroup) -> int:
    """Return the physical cores of a socket; 0 if the spec does not give them."""
    return group.cores_per_socket or 0


def cores(group: NodeGroup) -> int:
    """Return the physical cores of a node; 0 if the spec does not give them."""
    return (group.sockets or 1) * socket_cores(group)


def node_cpu(group: NodeGroup) -> int:
    """Return all CPUs of a node in thousandths, with hyperthreads; 0 if they are not given."""
    return cores(group) * (group.threads_per_core or 1) * 1000


def reserved_cpu(group: NodeGroup) -> int:
    """Return the CPUs, in thousandths, that a node keeps from workers.

    They are `reserved.cpu`, or `node_reserve_cpu` by default.
    """
    millicpu = group.reserved.cpu
    return node_reserve_cpu(node_cpu(group)) if millicpu is None else millicpu


def kubelet_cpu(group: NodeGroup) -> int:
    """Return the CPUs, in thousandths, that the static CPU manager's kubelet keeps.

    They are its reservedSystemCPUs, or a part of a CPU. Without `reserved.cpu`, whole cores are
    assumed: no other pod can use the rest of a core.
    """
    millicpu = group.reserved.cpu
    if millicpu is not None:
        return millicpu
    core = 1000 * (group.threads_per_core or 1)
    cores_kept = _divide_up(kubelet_reserve_cpu(node_cpu(group)), core)
    return cores_kept * core


def reserved_cores(group: NodeGroup) -> int:
    """Return the whole cores that the static CPU manager keeps from workers; 0 without it.

    The pods of the run's master and of DaemonSets share the rest of the allocatable cores. A worker
    that requests all allocatable cores never starts beside them.
    """
    if group.cpu_manager != "static":
        return 0
    core = 1000 * (group.threads_per_core or 1)
    return _divide_up(kubelet_cpu(group) + PODS_MILLICPU, core)


def node_reserve_cpu(millis: int) -> int:
    """Return what a node with `millis` CPUs keeps for its kubelet, DaemonSets and the master."""
    return kubelet_reserve_cpu(millis) + PODS_MILLICPU


def kubelet_reserve_cpu(millis: int) -> int:
    """Return what the kubelet of a node with `millis` CPUs keeps for the system.

    6 % of the first CPU, 1 % of the second, 0.5 % of the next two and 0.25 % of the rest, which is
    the table that GKE publishes.
    """
    # Shares in hundredths of a percent.
    steps = ((1000, 600), (1000, 100), (2000, 50), (millis, 25))
    return _divide_up(_sum_of_shares(millis, steps), 10_000)


def visible_memory(size: int) -> int:
    """Return what a node's kernel reports for memory modules with `size` bytes.

    Linux keeps 64 bytes for each page of 4 KiB, which is 1.6 %. Firmware and kernel keep more.
    """
    return size * 97 // 100


def node_reserve_memory(size: int) -> int:
    """Return what a node with `size` bytes keeps for its daemons, and for the master.

    25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % of the next 112, 2 % of the
    rest and 100 MiB for eviction, which is the table that GKE publishes, and the requests of the
    DaemonSets and the master.
    """
    # Shares in percent.
    steps = ((4 * GI, 25), (4 * GI, 20), (8 * GI, 10), (112 * GI, 6), (size, 2))
    kubelet = _sum_of_shares(size, steps) // 100 + 100 * MI
    return kubelet + _DAEMONS_MEMORY_BYTES + MASTER_MEMORY_BYTES


def _divide_up(number: int, divisor: int) -> int:
    """Return the quotient of whole numbers, rounded up."""
    return -(-number // divisor)


def _sum_of_shares(amount: int, steps: tuple[tuple[int, int], ...]) -> int:
    """Return the sum over (size, share) steps of `amount`, in order: part of the step x share."""
    total = 0
    for size, share in steps:
        part = min(amount, size)
        total += part * share
        amount -= part
    return total


def import_memory(slots: int) -> int:
    """Return the bytes that a worker's processes with these ranks take before they train."""
    return (slots + 1) * _FRAMEWORK_IMPORT_BYTES
