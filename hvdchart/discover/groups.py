"""Groups equal nodes and writes a spec's entry for each group. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hvdchart.discover.nodes import GPU_PRODUCT, INSTANCE_TYPE, NodeFacts
from hvdchart.quantity import MI, cpu_text, memory_text, pluralize
from hvdchart.spec.fields import API_VERSION, GROUP_NAME
from hvdchart.spec.topology import MASTER_MEMORY_BYTES, MASTER_MILLICPU, warn_of_duplicates
from hvdchart.spec.yaml_tree import Plain
from hvdchart.text import join_names

# Equal machines report slightly different memory, since their firmware reserves a part of it.
_EQUAL_MEMORY_RATIO = 0.97
# Labels that identify a kind of node, in order of preference.
_KIND_LABELS = (
    *GPU_PRODUCT,
    INSTANCE_TYPE,
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "nvidia.com/gpu.present",
    "kubernetes.io/arch",
)
# Labels that do not identify a kind of node: they differ between equal nodes, name a zone, or
# change over time.
_OTHER_LABELS = re.compile(
    r"kubernetes\.io/hostname|(topology|failure-domain\.beta)\.kubernetes\.io/.*|.*timestamp.*"
    r"|feature\.node\.kubernetes\.io/.*|beta\.kubernetes\.io/.*|nvidia\.com/.*"
)
Comments = dict[tuple[str | int, ...], str]


@dataclass
class DiscoveredGroup:
    """Equal nodes and the spec's entry for them; `comments` by the path of a key in the entry."""

    name: str
    nodes: list[NodeFacts]
    entry: dict[str, Plain] = field(default_factory=dict)
    comments: Comments = field(default_factory=dict)


@dataclass(frozen=True)
class Discovery:
    """The groups, and notes on all of them: excluded nodes, and what the API does not provide."""

    groups: tuple[DiscoveredGroup, ...]
    notes: tuple[str, ...]

    def spec(self, name: str) -> dict[str, Plain]:
        """Return the complete spec. Its command is an allreduce check, which the user replaces."""
        return {
            "apiVersion": API_VERSION,
            "name": name,
            "nodes": [group.entry for group in self.groups],
            "train": {"command": ["python3", "/horovod/bin/hvd_pods/rank/allreduce_check.py"]},
        }

    def comments(self) -> Comments:
        """Return the comments by the path of their key in the spec."""
        comments: Comments = {
            ("train", "command"): "an allreduce check of the chart; replace it with your command"
        }
        for index, group in enumerate(self.groups):
            for key, text in group.comments.items():
                comments["nodes", index, *key] = text
        return comments


def discover_groups(
    nodes: Iterable[NodeFacts], selected: Mapping[str, str], *, are_pods_known: bool = True
) -> Discovery:
    """Group equal nodes, selected by these labels, and describe each group.

    Without any usable node, there are no groups, and notes give the reasons. Without
    `are_pods_known`, the requests of DaemonSets are estimated.
    """
    facts = list(nodes)
    usable = [node for node in facts if not node.unusable]
    groups = [DiscoveredGroup("", equal) for equal in _equal_nodes(usable)]
    _set_names(groups)
    for group in groups:
        others = [node for node in facts if node not in group.nodes]
        _describe(group, others, are_pods_known)
        if selected:
            group.entry["nodeSelector"] = {**selected, **group.entry.get("nodeSelector", {})}
    notes = [f"excluded: node {node.name}: {node.unusable}" for node in facts if node.unusable]
    if not are_pods_known:
        notes.append("requests of DaemonSets are estimated: cannot list the pods of all namespaces")
    notes.append(
        "not in the API: the image, which a run needs (image: {repository: ..., tag: ...}), the "
        "network interface of the ranks (interface) and the kubelet's CPU manager (cpuManager)"
    )
    return Discovery(tuple(groups), tuple(notes))


def _equal_nodes(nodes: Iterable[NodeFacts]) -> Iterator[list[NodeFacts]]:
    """Yield lists of nodes with the same properties and nearly the same memory."""
    kinds: dict[tuple[object, ...], list[NodeFacts]] = {}
    for node in nodes:
        kind = (
            node.gpu_resource,
            node.gpus,
            node.allocatable.get(node.gpu_resource),
            node.replicas,
            node.product,
            node.capacity["cpu"],
            node.sockets,
            node.numa_nodes,
            node.has_several_numa,
            node.threads_per_core,
            node.rdma_resource,
            node.allocatable.get(node.rdma_resource),
            str(node.taints),
            node.labels.get("kubernetes.io/arch"),
        )
        kinds.setdefault(kind, []).append(node)
    # GPU nodes first, then the larger ones.
    order = sorted(kinds.values(), key=lambda kind: (-kind[0].gpus, -kind[0].capacity["cpu"]))
    for kind_nodes in order:
        rest = sorted(kind_nodes, key=lambda node: -node.capacity["memory"])
        while rest:
            most = rest[0].capacity["memory"]
            near = [node for node in rest if node.capacity["memory"] >= most * _EQUAL_MEMORY_RATIO]
            rest = rest[len(near) :]
            yield sorted(near, key=lambda node: node.name)


def _set_names(groups: list[DiscoveredGroup]) -> None:
    """Name each group after its GPUs or its kind of instance; equal names get a number."""
    taken: set[str] = {"master"}
    for group in groups:
        node = group.nodes[0]
        kind = node.product or ("gpu" if node.gpus else "cpu")
        if node.gpu_resource.startswith("nvidia.com/mig-"):
            kind = node.gpu_resource.removeprefix("nvidia.com/")
        word = re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")
        word = word if word[:1].isalpha() else f"n-{word}"
        word = word[: GROUP_NAME.longest - 3].strip("-")
        name = word
        number = 1
        while name in taken:
            number += 1
            name = f"{word}-{number}"
        taken.add(name)
        group.name = name


def _describe(group: DiscoveredGroup, others: list[NodeFacts], are_pods_known: bool) -> None:
    node = group.nodes[0]
    entry = group.entry
    comments = group.comments
    entry.update({"name": group.name, "count": len(group.nodes)})
    comments[("name",)] = join_names((member.name for member in group.nodes), limit=4)
    _describe_cpus(group, node)
    memory = min(member.capacity["memory"] for member in group.nodes) // MI * MI
    entry["memory"] = memory_text(memory)
    if node.gpus:
        entry["gpus"] = node.gpus
        entry["gpuResource"] = node.gpu_resource
        comments[("gpus",)] = _gpu_comment(node)
    if node.rdma_resource:
        entry["rdma"] = {"resource": node.rdma_resource, "count": 1}
        offered = node.allocatable[node.rdma_resource]
        comments["rdma", "count"] = (
            f"the node offers {offered}; the API does not show which ones connect the nodes"
        )
    label = _unique_label(group.nodes, others)
    if label:
        entry["nodeSelector"] = label
    elif others:
        text = "no label is unique to these nodes: label them and add nodeSelector"
        comments[("count",)] = text
    if node.taints:
        entry["tolerations"] = [_toleration(taint) for taint in node.taints]
    if are_pods_known:
        _describe_reserve(group, memory)


def _describe_cpus(group: DiscoveredGroup, node: NodeFacts) -> None:
    cpus = node.capacity["cpu"] // 1000
    threads = node.threads_per_core or 1
    cores = max(1, cpus // threads)
    sockets = node.sockets or (2 if node.has_several_numa else 1)
    even = cores % sockets == 0
    if not even:
        sockets = 1
    keys = {"sockets": sockets, "coresPerSocket": cores // sockets, "threadsPerCore": threads}
    group.entry.update(keys)
    if not even and node.sockets:
        hint = f"{pluralize(cores, 'core')} cannot be divided among {node.sockets} sockets"
        group.comments[("sockets",)] = f"{hint}; see lscpu"
    elif node.sockets is None:
        hint = "several NUMA nodes, so probably two" if node.has_several_numa else "see lscpu"
        group.comments[("sockets",)] = f"not known; {hint}"
    # NUMA nodes of a socket, by which CPU ranks are placed.
    numa_nodes, rest = divmod(node.numa_nodes or 1, sockets)
    if not node.gpus and not rest and 1 < numa_nodes <= min(cores // sockets, 16):
        group.entry["numaPerSocket"] = numa_nodes
        group.comments[("numaPerSocket",)] = f"{node.numa_nodes} NUMA nodes: one rank each"
    if node.threads_per_core is None:
        text = f"not known, so {cpus} CPUs count as cores; see lscpu"
        group.comments[("threadsPerCore",)] = text


def _toleration(taint: Mapping[str, str]) -> dict[str, Plain]:
    value = {"value": taint["value"]} if taint.get("value") else {}
    operator = "Equal" if value else "Exists"
    return {"key": taint["key"], "operator": operator, **value, "effect": taint["effect"]}


def _unique_label(nodes: list[NodeFacts], others: list[NodeFacts]) -> dict[str, str]:
    """Return a label that only these nodes have; empty without other nodes or such a label."""
    if not others:
        return {}
    first = nodes[0].labels.items()
    shared = dict(set(first).intersection(*(node.labels.items() for node in nodes)))
    names = [name for name in _KIND_LABELS if name in shared]
    names += sorted(name for name in shared if not _OTHER_LABELS.fullmatch(name))
    for name in names:
        if shared[name] and all(node.labels.get(name) != shared[name] for node in others):
            return {name: shared[name]}
    host = "kubernetes.io/hostname"
    if len(nodes) == 1 and host in shared:
        return {host: shared[host]}
    return {}


def _describe_reserve(group: DiscoveredGroup, memory: int) -> None:
    """Reserve the largest share that the kubelet, DaemonSets and the master take of any node."""

    def kubelet(name: str) -> int:
        return max(node.capacity[name] - node.allocatable.get(name, 0) for node in nodes)

    def daemons(name: str) -> int:
        return max(node.daemons.get(name, 0) for node in nodes)

    nodes = group.nodes
    cpu = kubelet("cpu") + daemons("cpu") + MASTER_MILLICPU
    # `memory` is that of the smallest node, and the reserve is that of the largest.
    most = max(node.capacity["memory"] for node in nodes)
    size = most - memory + kubelet("memory") + daemons("memory") + MASTER_MEMORY_BYTES
    # In whole MiB, rounded up.
    size = -(-size // MI) * MI
    if cpu >= nodes[0].capacity["cpu"] or size >= memory:
        group.comments[("memory",)] = "the kubelet and DaemonSets leave nothing for workers"
        return
    group.entry["reserved"] = {"cpu": cpu_text(cpu), "memory": memory_text(size)}
    group.comments[("reserved", "cpu")] = (
        f"kubelet {cpu_text(kubelet('cpu'))}, DaemonSets {cpu_text(daemons('cpu'))}, "
        f"master {cpu_text(MASTER_MILLICPU)}"
    )


def _gpu_comment(node: NodeFacts) -> str:
    parts = [node.product] if node.product else []
    size = node.labels.get("nvidia.com/gpu.memory", "")
    if size.isdecimal():
        parts.append(f"{int(size) // 1024} GiB each")
    if node.replicas > 1:
        shares = node.allocatable[node.gpu_resource]
        there = -(-shares // node.replicas)
        parts.append(f"{shares} shares of {there} GPUs")
        if node.gpus < there:
            parts.append("a worker gets one share, so that the other GPUs stay idle")
    if node.gpus > 1:
        parts.append(warn_of_duplicates(node.gpu_resource, node.labels))
    if node.other_gpus:
        parts.append(f"not used: {', '.join(node.other_gpus)}")
    return "; ".join(filter(None, parts)) or "one rank each"
