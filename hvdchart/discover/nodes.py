"""Read the facts about each node that a spec needs from Node and Pod objects. Pure.

CPUs are in thousandths and memory in bytes. The labels are those of node-feature-discovery
(feature.node.kubernetes.io), NVIDIA's and AMD's device plugins, and Kubernetes' well-known labels.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hvdchart.chart_files import is_gpu
from hvdchart.run.state.pod_requests import (
    is_condition_taint,
    is_daemon,
    parse_amounts,
    pod_requests,
)
from hvdchart.run.state.release import Object

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
GPU_PRODUCT = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
_NFD = "feature.node.kubernetes.io/"
_RDMA = re.compile(r"rdma/.+|.+/rdma[^/]*|vpc\.amazonaws\.com/efa|nvidia\.com/(hostdev|.*rdma.*)")
_CONTROL_PLANE = re.compile(r"node-role\.kubernetes\.io/(control-plane|master)")
# Virtual nodes of a cloud's container service, or simulated ones (KWOK): they have no kubelet that
# could run a rank.
_VIRTUAL_TAINT = re.compile(r"virtual-kubelet\.io/|kwok\.x-k8s\.io/|azure\.com/aci")
_VIRTUAL_LABELS = (
    ("type", "virtual-kubelet"),
    ("type", "kwok"),
    ("eks.amazonaws.com/compute-type", "fargate"),
)
# Devices that Horovod does not use for reductions: a run on the CPUs of such a node would leave
# them idle.
_ACCELERATOR = re.compile(
    r"(habana\.ai|cambricon\.com|furiosa\.ai|rebellions\.ai|tenstorrent\.com)/.+"
    r"|aws\.amazon\.com/neuron.*|google\.com/tpu|huawei\.com/Ascend.*|qualcomm\.com/qaic.*"
)
# The maximum number of cores per socket in a spec.
_MAX_SOCKET_CORES = 1024


@dataclass(frozen=True)
class NodeFacts:
    """One node; None where a fact is not known.

    `daemons` has the requests of the pods of DaemonSets and static pods on the node, by resource.
    """

    name: str
    labels: Mapping[str, str]
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    daemons: Mapping[str, int]
    gpu_resource: str
    other_gpus: tuple[str, ...]
    rdma_resource: str
    sockets: int | None
    numa_nodes: int | None
    has_several_numa: bool
    threads_per_core: int | None
    taints: tuple[Mapping[str, str], ...]
    unusable: str

    @property
    def gpus(self) -> int:
        """Return how many GPUs or MIG slices each worker may get.

        For time-sliced GPUs, this is the number of GPUs. For GPUs that MPS shares, the device
        plugin gives a pod one share.
        """
        if self.replicas > 1 and self.labels.get("nvidia.com/gpu.sharing-strategy") == "mps":
            return 1
        # Some shares of a GPU may be missing.
        return -(-self.allocatable.get(self.gpu_resource, 0) // self.replicas)

    @property
    def replicas(self) -> int:
        """Return the number of shares of each GPU or MIG slice; 1 if these are not shared."""
        name = self.gpu_resource.removesuffix(".shared")
        count = self.labels.get(f"{name}.replicas", "")
        return max(1, int(count)) if count.isdecimal() else 1

    @property
    def product(self) -> str:
        """Return the GPU's name, or without GPUs the instance type; empty if neither is known."""
        names = (*GPU_PRODUCT, INSTANCE_TYPE) if self.gpus else (INSTANCE_TYPE,)
        return next((self.labels[name] for name in names if self.labels.get(name)), "")


def read_nodes(
    nodes: Iterable[Object], pods: Iterable[Object], topologies: Iterable[Object] = ()
) -> list[NodeFacts]:
    """Return the facts about each node, sorted by name.

    `pods` are those of all namespaces. `topologies` are NodeResourceTopology objects, if any
    component publishes them.
    """
    zones = {topology["metadata"]["name"]: topology.get("zones") or [] for topology in topologies}
    by_node: dict[str, list[Object]] = {}
    for pod in pods:
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            by_node.setdefault(pod.get("spec", {}).get("nodeName") or "", []).append(pod)
    facts = []
    for node in nodes:
        name = node["metadata"]["name"]
        facts.append(_read_node(node, by_node.get(name, []), zones.get(name, [])))
    return sorted(facts, key=lambda node: node.name)


def _read_node(node: Object, pods: list[Object], zones: list[Object]) -> NodeFacts:
    labels = node["metadata"].get("labels") or {}
    status = node.get("status", {})
    allocatable = parse_amounts(status.get("allocatable", {}))
    gpus = [name for name, count in allocatable.items() if is_gpu(name) and count > 0]
    # A rank uses one device. A node with several kinds of devices uses the most numerous kind for
    # all ranks.
    gpus.sort(key=lambda name: (-allocatable[name], name))
    rdma = sorted(name for name, count in allocatable.items() if _RDMA.fullmatch(name) and count)
    daemons: Counter[str] = Counter()
    for pod in pods:
        if is_daemon(pod):
            daemons.update(pod_requests(pod))
    published = sum(1 for zone in zones if zone.get("type") == "Node")
    numa_nodes = published or _count(labels, "memory-numa.node_count")
    return NodeFacts(
        name=node["metadata"]["name"],
        labels=labels,
        capacity=parse_amounts(status.get("capacity", {})),
        allocatable=allocatable,
        daemons=daemons,
        gpu_resource=gpus[0] if gpus else "",
        other_gpus=tuple(gpus[1:]),
        rdma_resource=rdma[0] if rdma else "",
        sockets=_count(labels, "cpu-topology.socket_count"),
        numa_nodes=numa_nodes,
        has_several_numa=(numa_nodes or 0) > 1 or labels.get(f"{_NFD}memory-numa") == "true",
        threads_per_core=_threads(labels),
        taints=tuple(taint for taint in _taints(node) if not is_condition_taint(taint["key"])),
        unusable=_unusable_reason(node),
    )


def _taints(node: Object) -> list[dict[str, str]]:
    """Return the taints that keep pods off a node, sorted."""
    taints: list[dict[str, str]] = node.get("spec", {}).get("taints") or []
    hard = [taint for taint in taints if taint.get("effect") != "PreferNoSchedule"]
    return sorted(hard, key=lambda taint: (taint["key"], taint.get("effect", "")))


def _unusable_reason(node: Object) -> str:
    """Explain why no worker should run on a node; empty if one may."""
    if node.get("spec", {}).get("unschedulable"):
        return "cordoned"
    conditions = node.get("status", {}).get("conditions") or []
    ready = next((c for c in conditions if c["type"] == "Ready"), {"status": "Unknown"})
    if ready["status"] != "True":
        return f"not ready: {ready.get('message') or ready.get('reason') or ready['status']}"
    if any(_CONTROL_PLANE.match(taint["key"]) for taint in _taints(node)):
        return "control plane"
    system = _system(node)
    if system != "linux":
        return f"runs {system}, and the images are for Linux"
    if any(_VIRTUAL_TAINT.match(taint["key"]) for taint in _taints(node)):
        return "virtual"
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(name) == value for name, value in _VIRTUAL_LABELS):
        return "virtual"
    tainted = [taint["key"] for taint in _taints(node) if is_condition_taint(taint["key"])]
    if tainted:
        return f"tainted {tainted[0]}"
    status = node.get("status", {})
    offered = [
        name for name, count in parse_amounts(status.get("allocatable", {})).items() if count
    ]
    devices = sorted(name for name in offered if _ACCELERATOR.fullmatch(name))
    if devices and not any(map(is_gpu, offered)):
        return f"has {devices[0]}, which Horovod does not use; to use its CPUs, write its group"
    cpus = parse_amounts(status.get("capacity", {})).get("cpu", 0) // 1000
    cores = cpus // (_threads(labels) or 1) // (_count(labels, "cpu-topology.socket_count") or 1)
    if cores > _MAX_SOCKET_CORES:
        return f"has {cores} cores in a socket, and a spec takes at most {_MAX_SOCKET_CORES}"
    return ""


def _system(node: Object) -> str:
    """Return the operating system of a node; Linux if it is not given."""
    info = node.get("status", {}).get("nodeInfo") or {}
    labels = node["metadata"].get("labels") or {}
    return str(labels.get("kubernetes.io/os") or info.get("operatingSystem") or "linux")


def _threads(labels: Mapping[str, str]) -> int | None:
    """Return hardware threads per core; node-feature-discovery only labels multithreading."""
    several = labels.get(f"{_NFD}cpu-hardware_multithreading")
    if several == "true":
        return 2
    # Today's arm64 servers run one thread per core.
    if several == "false" or labels.get("kubernetes.io/arch") == "arm64":
        return 1
    return None


def _count(labels: Mapping[str, str], name: str) -> int | None:
    """Return the number in a label of node-feature-discovery, which a NodeFeatureRule can publish.

    Returns None without such a label, for 0, and for any other text.
    """
    count = labels.get(f"{_NFD}{name}", "")
    if not count.isdecimal():
        return None
    return int(count) or None
