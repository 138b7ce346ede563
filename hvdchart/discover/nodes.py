"""Node and pod objects -> the facts about each node that a spec is made of. Pure.

CPUs are in thousandths and memory in bytes. Labels are those of node-feature-discovery
(feature.node.kubernetes.io), of NVIDIA's and AMD's device plugins, and Kubernetes' well-known ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
GPU_PRODUCT = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
_NFD = "feature.node.kubernetes.io/"
_GPU = re.compile(
    r"nvidia\.com/(gpu|gpu\.shared|mig-.+)|amd\.com/(gpu|[scdqt]px_nps\d)|gpu\.intel\.com/(i915|xe)"
)
_RDMA = re.compile(r"rdma/.+|.+/rdma[^/]*|vpc\.amazonaws\.com/efa|nvidia\.com/(hostdev|.*rdma.*)")
# Set by Kubernetes itself for as long as a node is unwell.
_UNWELL = re.compile(r"node\.kubernetes\.io/|node\.cloudprovider\.kubernetes\.io/")
_CONTROL_PLANE = re.compile(r"node-role\.kubernetes\.io/(control-plane|master)")
_QUANTITY = re.compile(
    r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e([-+]?[0-9]{1,2}))?([A-Za-z]{0,2})", re.I
)
_SCALES: dict[str, Fraction | int] = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": 1,
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
_DAEMON_OWNERS = ("DaemonSet", "Node")


@dataclass(frozen=True)
class NodeFacts:
    """One node. None: not known. `used` and `daemons` are requests of all pods on it, and of those
    that come with the node (DaemonSets, static pods): by resource, CPU in thousandths.
    """

    name: str
    labels: Mapping[str, str]
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    used: Mapping[str, int]
    daemons: Mapping[str, int]
    gpu_resource: str
    other_gpus: tuple[str, ...]
    rdma_resource: str
    sockets: int | None
    several_numa: bool
    threads_per_core: int | None
    taints: tuple[Mapping[str, str], ...]
    unusable: str

    @property
    def gpus(self) -> int:
        """GPUs, MIG slices or shared GPUs that it offers."""
        return self.allocatable.get(self.gpu_resource, 0)

    @property
    def product(self) -> str:
        """The GPU's name, else the machine's type, else empty."""
        names = (*GPU_PRODUCT, INSTANCE_TYPE) if self.gpus else (INSTANCE_TYPE,)
        return next((self.labels[name] for name in names if self.labels.get(name)), "")

    def free(self, resource: str) -> int:
        """What pods could request of a resource now."""
        return self.allocatable.get(resource, 0) - self.used.get(resource, 0)


def read_nodes(nodes: Iterable[Object], pods: Iterable[Object]) -> list[NodeFacts]:
    """The facts of each node, in order of names; `pods` are those of all namespaces."""
    by_node: dict[str, list[Object]] = {}
    for pod in pods:
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            by_node.setdefault(pod.get("spec", {}).get("nodeName") or "", []).append(pod)
    found = [_read_node(node, by_node.get(node["metadata"]["name"], [])) for node in nodes]
    return sorted(found, key=lambda facts: facts.name)


def _read_node(node: Object, pods: list[Object]) -> NodeFacts:
    labels = node["metadata"].get("labels") or {}
    status = node.get("status", {})
    allocatable = _amounts(status.get("allocatable", {}))
    gpus = [name for name, count in allocatable.items() if _GPU.fullmatch(name) and count > 0]
    # One rank a device: with several kinds, the one that there is most of.
    gpus.sort(key=lambda name: (-allocatable[name], name))
    rdma = sorted(name for name, count in allocatable.items() if _RDMA.fullmatch(name) and count)
    used: Counter[str] = Counter()
    daemons: Counter[str] = Counter()
    for pod in pods:
        requests = pod_requests(pod)
        used.update(requests)
        owners = {owner.get("kind") for owner in pod["metadata"].get("ownerReferences") or []}
        if owners & set(_DAEMON_OWNERS):
            daemons.update(requests)
    return NodeFacts(
        name=node["metadata"]["name"],
        labels=labels,
        capacity=_amounts(status.get("capacity", {})),
        allocatable=allocatable,
        used=used,
        daemons=daemons,
        gpu_resource=gpus[0] if gpus else "",
        other_gpus=tuple(gpus[1:]),
        rdma_resource=rdma[0] if rdma else "",
        sockets=_whole(labels, "cpu-topology.socket_count"),
        several_numa=labels.get(f"{_NFD}memory-numa") == "true",
        threads_per_core=_threads(labels),
        taints=tuple(t for t in _taints(node) if not _UNWELL.match(t["key"])),
        unusable=_why_unusable(node),
    )


def _taints(node: Object) -> list[dict[str, str]]:
    found: list[dict[str, str]] = node.get("spec", {}).get("taints") or []
    return sorted(
        (t for t in found if t.get("effect") != "PreferNoSchedule"),
        key=lambda taint: (taint["key"], taint.get("effect", "")),
    )


def _why_unusable(node: Object) -> str:
    if node.get("spec", {}).get("unschedulable"):
        return "cordoned"
    conditions = node.get("status", {}).get("conditions") or []
    ready = next((c for c in conditions if c["type"] == "Ready"), {"status": "Unknown"})
    if ready["status"] != "True":
        return f"not ready: {ready.get('message') or ready.get('reason') or ready['status']}"
    if any(_CONTROL_PLANE.match(taint["key"]) for taint in _taints(node)):
        return "control plane"
    unwell = [taint["key"] for taint in _taints(node) if _UNWELL.match(taint["key"])]
    return f"tainted {unwell[0]}" if unwell else ""


def _threads(labels: Mapping[str, str]) -> int | None:
    """Hardware threads of a core; node-feature-discovery says whether there are several."""
    said = labels.get(f"{_NFD}cpu-hardware_multithreading")
    if said == "true":
        return 2
    # The arm64 servers of today run one thread a core.
    return 1 if said == "false" or labels.get("kubernetes.io/arch") == "arm64" else None


def _whole(labels: Mapping[str, str], name: str) -> int | None:
    said = labels.get(_NFD + name, "")
    return int(said) if said.isdecimal() and int(said) > 0 else None


def pod_requests(pod: Object) -> dict[str, int]:
    """What a pod keeps from others, as the scheduler counts it: containers and sidecars together,
    or the largest init container where that is more, and the runtime's overhead.
    """
    spec = pod.get("spec", {})
    running: Counter[str] = Counter()
    largest: dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            running.update(asked)
            continue
        for name, amount in asked.items():
            largest[name] = max(largest.get(name, 0), running[name] + amount)
    for container in spec.get("containers") or []:
        running.update(_asked(container))
    total = {name: max(running[name], largest.get(name, 0)) for name in {*running, *largest}}
    for name, amount in _amounts(spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0) + amount
    return total


def _asked(container: Object) -> dict[str, int]:
    resources = container.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(said: Mapping[str, str]) -> dict[str, int]:
    return {
        name: amount(text) if name != "cpu" else amount(text, 1000) for name, text in said.items()
    }


def amount(text: str, times: int = 1) -> int:
    """A Kubernetes quantity times `times`, rounded up; raises ValueError for anything else."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None or match[3] not in _SCALES:
        raise ValueError(f"{text!r} is no Kubernetes quantity")
    exact = Fraction(match[1]) * Fraction(f"1e{match[2] or 0}") * _SCALES[match[3]] * times
    return -int(-exact // 1)
