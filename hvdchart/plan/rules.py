"""The planning rules, one function each: a number, the reason a person is told, the rule's source.

CPUs are in thousandths, memory in bytes. A rule returns (number, or None to leave it out; reason).
docs/planning.md names the sources in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hvdchart.quantity import GI, MI, counted, cpu_text, memory_text
from hvdchart.spec.model import NodeGroup
from hvdchart.spec.topology import (
    cores,
    default_slots,
    node_cpu,
    node_reserve_memory,
    reserved_cores,
    reserved_cpu,
)

# Intel's settings keep two cores of a socket out of the intra-op pool, for the second operation
# in flight and for communication; with fewer cores than this there is nothing to keep.
_FEWEST_CORES_TO_SPARE = 4
_INTEL = "Intel"
_KUBERNETES = "Kubernetes"
_SPEC = "the spec"
_OURS = "hvdchart"


@dataclass(frozen=True)
class Reason:
    """Why a number is what it is: `because` for a person, `source` for where the rule is from."""

    because: str
    source: str


Rule: TypeAlias = tuple[int | None, Reason]

# Open MPI's ranks poll while they wait. Measured with two ranks on two busy cores: docs/images.md.
YIELD = "OMPI_MCA_mpi_yield_when_idle"
YIELD_REASON = Reason("shared machines: a rank that waits leaves its core to another", _OURS)
ALL_GPUS = Reason("all GPUs of the node", "Horovod")
RDMA = Reason("rdma.count", _SPEC)
KMP_BLOCKTIME: Rule = (None, Reason("left alone: 0 was measured slower", _OURS))
KMP_AFFINITY: Rule = (None, Reason("left alone: mpirun binds", _OURS))

# TensorFlow has oneDNN on by itself where the CPU has AVX512_VNNI or more.
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
# TensorFlow hands it to oneDNN, which may then round the factors of convolutions and products.
# Variables, activations and sums stay float32.
FPMATH = "TF_SET_ONEDNN_FPMATH_MODE"
BFLOAT16: Rule = (None, Reason("left alone: it rounds", _OURS))


def said(where: str, instead_of: object = None) -> Reason:
    """The reason for a number that the spec gives: `where` is its key."""
    instead = "" if instead_of is None else f" instead of {instead_of}"
    return Reason(f"{where}{instead}", _SPEC)


def cores_per_rank(group: NodeGroup, slots: int) -> int:
    """Physical cores that each rank has to itself; 0 when the spec does not say.

    Ranks of a node go in step, so all get what the worst placed one has: the kubelet takes its
    reserved cores in ascending order of core ID, that is, from the first socket.
    """
    total = cores(group)
    if not total:
        return 0
    kept = reserved_cores(group)
    if kept and slots == (group.sockets or 1):
        return max(1, (group.cores_per_socket or 1) - kept)
    return max(1, (total - kept) // slots)


def slots(group: NodeGroup) -> Rule:
    """One rank a GPU; without GPUs one rank a socket."""
    if group.gpus:
        return default_slots(group), Reason("one rank a GPU", "Horovod")
    return default_slots(group), Reason("one rank a socket", _INTEL)


def omp_threads(group: NodeGroup, per_rank: int) -> Rule:
    """One OpenMP thread a physical core: hyperthreads share the vector units."""
    whole = "coresPerSocket" if per_rank == group.cores_per_socket else "cores of a rank"
    return per_rank or None, Reason(f"{whole}: one thread a core", _INTEL)


def intra_op_threads(per_rank: int) -> Rule:
    """The cores of a rank less two; all of them where there are too few to set two aside."""
    if per_rank < _FEWEST_CORES_TO_SPARE:
        return per_rank or None, Reason(
            f"{counted(per_rank, 'core')}: too few to set two aside", _OURS
        )
    return per_rank - 2, Reason(f"cores of a rank {per_rank} - 2", _INTEL)


def inter_op_threads(per_rank: int) -> Rule:
    """Two; one where there is one core. Measured with two cores, two beat one: docs/planning.md."""
    if per_rank < 2:
        return per_rank or None, Reason("1 core: no room for a second", _OURS)
    return 2, Reason("two operations side by side", _INTEL)


def one_dnn(group: NodeGroup) -> Rule:
    """On for ranks on CPUs. Measured on a CPU where TensorFlow has it off: docs/planning.md."""
    return (None if group.gpus else 1), Reason("on every CPU, not the newest alone", _OURS)


def cpu_request(group: NodeGroup) -> Rule:
    """All CPUs of the node, hyperthreads counted as Kubernetes does, less what is reserved."""
    total = node_cpu(group)
    if not total:
        return None, Reason("the spec does not say the node's cores", _SPEC)
    threads = group.threads_per_core or 1
    shown = f"{group.sockets or 1} x {group.cores_per_socket} x {threads}"
    if group.shared:
        why = f"half of {shown} CPUs: who is busy may take the rest"
        return total // 2, Reason(why, _OURS)
    if group.cpu_manager == "static":
        kept = reserved_cores(group)
        free = max(cores(group) - kept, 1) * threads * 1000
        return free, Reason(f"{shown} CPUs - {kept} whole cores kept", _KUBERNETES)
    kept = reserved_cpu(group)
    source = "GKE's table" if group.reserved.cpu is None else _SPEC
    free = max(total - kept, total // 2) if group.reserved.cpu is None else total - kept
    whole = free // 1000 * 1000 or free
    return whole, Reason(f"{shown} CPUs - {cpu_text(kept)} kept", source)


def memory_request(group: NodeGroup) -> Rule:
    """The node's memory less what is reserved, in whole GiB where that loses little."""
    if group.memory is None:
        return None, Reason("the spec does not say the node's memory", _SPEC)
    if group.shared:
        return group.memory, Reason("the worker's share", _SPEC)
    kept = group.reserved.memory
    source = "GKE's table" if kept is None else _SPEC
    if kept is None:
        kept = node_reserve_memory(group.memory)
        free = max(group.memory - kept, group.memory // 2)
    else:
        free = group.memory - kept
    unit = GI if free >= 8 * GI else MI
    whole = free // unit * unit or free
    why = f"{memory_text(group.memory)} - {memory_text(kept // MI * MI)} kept"
    return whole, Reason(why, source)


def shm(group: NodeGroup, ranks: int, memory: int | None) -> Rule:
    """Shared memory for Open MPI's and NCCL's buffers: 512 MiB a CPU rank, 1 GiB a GPU rank, at
    least 1 GiB, and at most a quarter of the worker's memory, which it counts towards.
    """
    each = GI if group.gpus else GI // 2
    wanted = max(GI, ranks * each)
    if memory is not None and wanted > memory // 4:
        return memory // 4 // MI * MI or MI, Reason("a quarter of the worker's memory", _OURS)
    return wanted, Reason(f"{counted(ranks, 'rank')} x {memory_text(each)}, at least 1Gi", _OURS)


def binding(groups: list[NodeGroup]) -> tuple[str, Reason]:
    """What a rank is bound to: cores of its own, unless those could be another rank's too.

    To cores and not to a socket: a virtual machine may show each CPU as a socket, and a rank with
    28 threads would be bound to one of them.
    """
    if any(group.shared for group in groups):
        why = "shared machines: bound, all ranks would sit on the first cores"
        return "none", Reason(why, _OURS)
    if any(group.gpus for group in groups):
        return "none", Reason("GPU ranks are not bound to cores", _OURS)
    return "core", Reason("each rank to the cores of its socket", _INTEL)
