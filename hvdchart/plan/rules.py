"""The planning rules, one function each: the planned number, its reason, and the rule's source.

CPUs are in thousandths, memory in bytes. A rule returns the number (None: leave it out) and its
reason. docs/planning.md names the sources in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hvd_pods.shared.thread_counts import plan_threads
from hvdchart.quantity import GI, MI, cpu_text, memory_text, pluralize
from hvdchart.spec.model import NodeGroup
from hvdchart.spec.topology import (
    PODS_MILLICPU,
    cores,
    default_slots,
    kubelet_cpu,
    node_cpu,
    node_reserve_memory,
    reserved_cores,
    reserved_cpu,
    socket_cores,
    visible_memory,
)

_INTEL = "Intel"
_NVIDIA = "NVIDIA"
_KUBERNETES = "Kubernetes"
FROM_SPEC = "the spec"
FROM_HVDCHART = "hvdchart"


@dataclass(frozen=True)
class Reason:
    """Why a number was planned: `because` explains it, `source` names where the rule is from."""

    because: str
    source: str


Rule: TypeAlias = tuple[int | None, Reason]
YIELD_REASON = Reason("shared machines: waiting ranks yield their core", FROM_HVDCHART)
ALL_GPUS_REASON = Reason("all GPUs of the node", "Horovod")
# XLA starts a thread for each CPU that the process may use, or the number in this variable.
XLA_THREADS = "NPROC"
XLA_REASON = Reason("XLA's threads, as many as OpenMP's", "OpenXLA")
RDMA_REASON = Reason("rdma.count", FROM_SPEC)
KMP_BLOCKTIME: Rule = (None, Reason("not set: 0 was measured slower", FROM_HVDCHART))
KMP_AFFINITY: Rule = (None, Reason("not set: mpirun binds ranks", FROM_HVDCHART))
# TensorFlow turns oneDNN on by default where the CPU has AVX512_VNNI or more.
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
# TensorFlow passes the mode to oneDNN, which may then round the factors of convolutions and
# products. Variables, activations and sums stay float32.
FPMATH = "TF_SET_ONEDNN_FPMATH_MODE"
BFLOAT16: Rule = (None, Reason("not set: it rounds", FROM_HVDCHART))


def override_reason(key: str, instead_of: object = None) -> Reason:
    """Return the reason for a number that the spec gives at `key` instead of the planned one."""
    instead = "" if instead_of is None else f" instead of {instead_of}"
    return Reason(f"{key}{instead}", FROM_SPEC)


def shown(key: str, number: int) -> str:
    """Format a planned number as in the values: CPUs and amounts of memory with their units."""
    if key.endswith(".cpu"):
        return cpu_text(number)
    if key.endswith(("memory", "shm")):
        return memory_text(number)
    return str(number)


def cores_per_rank(group: NodeGroup, slots: int) -> int:
    """Return the physical cores of each rank; 0 if the spec does not give the node's cores.

    Ranks wait for each other, so all get as many cores as the rank with the fewest. The kubelet
    takes its reserved cores in ascending order of core ID, that is, from the first socket. It gives
    pods the cores of complete sockets first.
    """
    total = cores(group)
    if not total:
        return 0
    reserved = reserved_cores(group)
    per_socket = ranks_of_a_socket(group, slots)
    if per_socket:
        return (socket_cores(group) - reserved) // per_socket
    return max(1, (total - reserved) // slots)


def ranks_of_a_socket(group: NodeGroup, slots: int) -> int:
    """Return the ranks of each socket.

    Return 0 if the numbers differ, or if the first socket lacks a core for each rank.
    """
    per_socket, rest = divmod(slots, group.sockets or 1)
    # The cores of the first socket, from which the kubelet takes its own.
    left = socket_cores(group) - reserved_cores(group)
    return per_socket if not rest and left >= per_socket else 0


def has_rank_on_two_sockets(group: NodeGroup, slots: int) -> bool:
    """Return whether a rank gets cores of two sockets: ranks take the next cores in order."""
    per_rank = cores_per_rank(group, slots)
    reserved = reserved_cores(group)
    # Each end of a socket but the last, counted in cores that ranks may use.
    ends = (number * socket_cores(group) - reserved for number in range(1, group.sockets or 1))
    return any(0 < end < slots * per_rank and end % per_rank for end in ends)


def slots(group: NodeGroup) -> Rule:
    """Plan one rank per GPU; without GPUs one rank per NUMA node, by default a socket."""
    if group.gpus:
        return default_slots(group), Reason("one rank per GPU", "Horovod")
    unit = "socket" if (group.numa_per_socket or 1) == 1 else "NUMA node"
    return default_slots(group), Reason(f"one rank per {unit}", _INTEL)


def omp_threads(group: NodeGroup, per_rank: int) -> Rule:
    """Plan one OpenMP thread per physical core: hyperthreads share the vector units."""
    which = "coresPerSocket" if per_rank == group.cores_per_socket else "cores of a rank"
    source = FROM_HVDCHART if group.gpus else _INTEL
    threads = _threads("OMP_NUM_THREADS", per_rank, bool(group.gpus))
    return threads, Reason(f"{which}: one thread per core", source)


def intra_op_threads(per_rank: int, gpus: bool) -> Rule:
    """Plan a thread for each core of a rank minus two, but never fewer than for fewer cores."""
    threads = _threads("TF_NUM_INTRAOP_THREADS", per_rank, gpus)
    if threads is None or threads > per_rank - 2:
        few = f"{threads} of {pluralize(per_rank, 'core')}: too few to leave two free"
        return threads, Reason(few, FROM_HVDCHART)
    return threads, Reason(f"{per_rank} cores of a rank - 2", FROM_HVDCHART if gpus else _INTEL)


def inter_op_threads(per_rank: int, gpus: bool) -> Rule:
    """Plan two threads, or one if there is one core.

    With two cores, two threads measured faster: docs/performance.md. On GPU nodes these threads
    also read and decode the input of their GPU.
    """
    threads = _threads("TF_NUM_INTEROP_THREADS", per_rank, gpus)
    if gpus and per_rank:
        because = f"{per_rank} cores of a rank - 2, at least 2: they feed its GPU"
        return threads, Reason(because, _NVIDIA)
    if per_rank < 2:
        return threads, Reason("1 core: one operation at a time", FROM_HVDCHART)
    return threads, Reason("two operations in parallel", _INTEL)


def _threads(variable: str, per_rank: int, gpus: bool) -> int | None:
    """Return a rank's threads by the pods' own rule for so many cores; None without cores."""
    return int(plan_threads(per_rank, gpus)[variable]) if per_rank else None


def one_dnn(group: NodeGroup) -> Rule:
    """Turn oneDNN on for ranks on CPUs.

    docs/performance.md has its gain if the default is off.
    """
    reason = Reason("on every CPU, also where TensorFlow's default is off", FROM_HVDCHART)
    return (None if group.gpus else 1), reason


def cpu_request(group: NodeGroup) -> Rule:
    """Plan all CPUs of the node, counting hyperthreads as Kubernetes does, minus the reserved ones.

    With the static CPU manager in whole cores, and beside the cores that the kubelet reserves there
    is room for the master and DaemonSets.
    """
    total = node_cpu(group)
    if not total:
        return None, Reason("the spec does not give the node's cores", FROM_SPEC)
    threads = group.threads_per_core or 1
    shown = f"{group.sockets or 1} x {group.cores_per_socket} x {threads}"
    if group.shared:
        text = f"half of {shown} CPUs: idle CPU can be borrowed"
        return total // 2, Reason(text, FROM_HVDCHART)
    if group.cpu_manager == "static":
        kubelet = cpu_text(kubelet_cpu(group))
        pods = cpu_text(PODS_MILLICPU)
        text = f"{shown} CPUs - {kubelet} of the kubelet - {pods} for master and DaemonSets"
        left = (cores(group) - reserved_cores(group)) * threads
        return left * 1000, Reason(f"{text}, in whole cores", _KUBERNETES)
    reserved = reserved_cpu(group)
    source = "GKE's table" if group.reserved.cpu is None else FROM_SPEC
    free = total - reserved
    if group.reserved.cpu is None and free < total // 2:
        text = f"half of {shown} CPUs: the usual reserve, {cpu_text(reserved)}, is more"
        return total // 2, Reason(text, FROM_HVDCHART)
    whole = free // 1000 * 1000 or free
    rounded = "" if whole == free else ", in whole CPUs"
    return whole, Reason(f"{shown} CPUs - {cpu_text(reserved)} reserved{rounded}", source)


def memory_request(group: NodeGroup) -> Rule:
    """Plan the node's memory minus the reserved one, in whole GiB from 8 GiB on, else in MiB."""
    if group.memory is None:
        return None, Reason("the spec does not give the node's memory", FROM_SPEC)
    if group.shared:
        return group.memory, Reason("the worker's share", FROM_SPEC)
    if group.reserved.memory is None:
        visible = visible_memory(group.memory)
        reserved = node_reserve_memory(visible)
        whole, rounded = _round_memory(max(visible - reserved, visible // 2))
        if visible - reserved < visible // 2:
            text = f"half of {memory_text(group.memory)} - 3 % for the kernel{rounded}"
            return whole, Reason(text, FROM_HVDCHART)
        shown = f"{memory_text(group.memory)} - 3 % for the kernel"
        source = "GKE's table"
    else:
        reserved = group.reserved.memory
        whole, rounded = _round_memory(group.memory - reserved)
        shown = memory_text(group.memory)
        source = FROM_SPEC
    text = f"{shown} - {memory_text(-(-reserved // MI) * MI)} reserved{rounded}"
    return whole, Reason(text, source)


def _round_memory(free: int) -> tuple[int, str]:
    """Round `free` to whole GiB from 8 GiB on, else to whole MiB.

    Return the result, and words for the rounding, which are empty if nothing was rounded.
    """
    is_large = free >= 8 * GI
    unit = GI if is_large else MI
    name = "GiB" if is_large else "MiB"
    # An amount below one unit is not rounded.
    whole = free // unit * unit or free
    return whole, "" if whole == free else f", in whole {name}"


def commits(state: int, workers: int, *, is_sharded: bool) -> tuple[int, str]:
    """Return the bytes of the commits that a worker keeps, and their reason.

    A worker keeps two commits of its part of the state. For a sharded state, its part is the shards
    of its ranks, and copies of as many shards of another worker.
    """
    if not state:
        return 0, ""
    if not is_sharded or workers < 2:
        return 2 * state, f"2 x {memory_text(state)} of `train.state`"
    per_worker = -(-state // workers)
    part = memory_text(-(-per_worker // MI) * MI)
    return (
        4 * per_worker,
        f"2 x 2 x {part}, its part of `train.state` and a copy of another worker's",
    )


def shm(group: NodeGroup, ranks: int, memory: int | None, commits: tuple[int, str]) -> Rule:
    """Plan shared memory for Open MPI and NCCL, which counts as memory of the worker.

    It is 512 MiB per CPU rank or 1 GiB per GPU rank, at least 1 GiB, and at most a quarter of the
    worker's memory; and the commits that ranks keep.
    """
    per_rank = GI if group.gpus else GI // 2
    shm_bytes = max(GI, ranks * per_rank)
    text = f"{pluralize(ranks, 'rank')} x {memory_text(per_rank)}, at least 1Gi"
    if memory is not None and shm_bytes > memory // 4:
        # In whole MiB, at least one.
        shm_bytes = memory // 4 // MI * MI or MI
        text = "a quarter of the worker's memory"
    size, commits_text = commits
    if size:
        shm_bytes += -(-size // MI) * MI
        text += f" + {commits_text}"
    return shm_bytes, Reason(text, FROM_HVDCHART)


def binding(groups: list[NodeGroup]) -> tuple[str, Reason]:
    """Plan the binding of ranks: to cores of their own, unless other workers may use these cores.

    Ranks are not bound to a socket: a virtual machine may show each CPU as a socket, and would bind
    a rank with 28 threads to one of them.
    """
    if any(group.shared for group in groups):
        text = "shared machines: all workers would bind to the first cores"
        return "none", Reason(text, FROM_HVDCHART)
    if any(group.gpus for group in groups):
        return "none", Reason("GPU ranks are not bound to cores", FROM_HVDCHART)
    if any((group.numa_per_socket or 1) > 1 for group in groups):
        return "core", Reason("bind each rank to cores of its own", _INTEL)
    return "core", Reason("bind each rank to the cores of its socket", _INTEL)
