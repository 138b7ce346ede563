"""What a cluster's nodes are -> a spec, grouped by like nodes, with what is not known. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hvdchart.discover.nodes import GPU_PRODUCT, INSTANCE_TYPE, NodeFacts
from hvdchart.quantity import MI, cpu_text, memory_text
from hvdchart.spec.patterns import API_VERSION, GROUP_NAME
from hvdchart.spec.topology import MASTER_CPU, MASTER_MEMORY
from hvdchart.spec.yaml_tree import Plain

# Machines of one kind differ by what their firmware keeps of the memory.
_LIKE_MEMORY = 0.97
# Labels that say what a node is or whom it is for, the plainest first.
_TELLING_LABELS = (
    *GPU_PRODUCT,
    INSTANCE_TYPE,
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "nvidia.com/gpu.present",
    "kubernetes.io/arch",
)
# Labels of one node, of its place, or that change with time: they tell no kind of node.
_PASSING_LABELS = re.compile(
    r"kubernetes\.io/hostname|(topology|failure-domain\.beta)\.kubernetes\.io/.*|.*timestamp.*"
    r"|feature\.node\.kubernetes\.io/.*|beta\.kubernetes\.io/.*|nvidia\.com/.*"
)
Comments = dict[tuple[str | int, ...], str]


@dataclass
class Group:
    """Like nodes and the spec's entry for them; `comments` are by the key below the entry."""

    name: str
    nodes: list[NodeFacts]
    entry: dict[str, Plain] = field(default_factory=dict)
    comments: Comments = field(default_factory=dict)


@dataclass(frozen=True)
class Discovery:
    """The groups, and what concerns them all: nodes left out, and what the API does not tell."""

    groups: tuple[Group, ...]
    notes: tuple[str, ...]

    def spec(self, name: str) -> dict[str, Plain]:
        """The whole spec; its command is an allreduce check, until a person puts another there."""
        return {
            "apiVersion": API_VERSION,
            "name": name,
            "nodes": [group.entry for group in self.groups],
            "train": {"command": ["python3", "/horovod/bin/check.py"]},
        }

    def comments(self) -> Comments:
        """The comments by their path in the spec."""
        found: Comments = {
            ("train", "command"): "an allreduce check of the chart; put your command here"
        }
        for index, group in enumerate(self.groups):
            found.update({("nodes", index, *key): text for key, text in group.comments.items()})
        return found


def discover(
    nodes: Iterable[NodeFacts], selected: Mapping[str, str], *, pods_known: bool = True
) -> Discovery:
    """Group like nodes and describe each group; nodes that can run nothing now are only named.

    `selected` are labels that all of these nodes have, and others may lack.
    """
    facts = list(nodes)
    usable = [node for node in facts if not node.unusable]
    groups = [Group("", like) for like in _like(usable)]
    _name(groups)
    for group in groups:
        others = [node for node in facts if node not in group.nodes]
        _describe(group, others, pods_known)
        if selected:
            group.entry["nodeSelector"] = {**selected, **group.entry.get("nodeSelector", {})}
    notes = [f"left out: node {node.name}: {node.unusable}" for node in facts if node.unusable]
    if not pods_known:
        notes.append(
            "pods of all namespaces could not be listed: what DaemonSets request is estimated"
        )
    notes.append(
        "not in the API: the network interface of the ranks (interface) and the kubelet's CPU "
        "manager (cpuManager)"
    )
    return Discovery(tuple(groups), tuple(notes))


def _like(nodes: Iterable[NodeFacts]) -> Iterator[list[NodeFacts]]:
    """Nodes of one kind: the same but for their names, with nearly the same memory."""
    kinds: dict[tuple[object, ...], list[NodeFacts]] = {}
    for node in nodes:
        kind = (
            node.gpu_resource, node.gpus, node.product, node.capacity.get("cpu", 0),
            node.sockets, node.several_numa, node.threads_per_core,
            node.rdma_resource, node.allocatable.get(node.rdma_resource, 0),
            str(node.taints), node.labels.get("kubernetes.io/arch"),
        )  # fmt: skip
        kinds.setdefault(kind, []).append(node)
    # GPU nodes first, then the larger ones.
    order = sorted(kinds.values(), key=lambda like: (-like[0].gpus, -like[0].capacity["cpu"]))
    for alike in order:
        rest = sorted(alike, key=lambda node: -node.capacity["memory"])
        while rest:
            most = rest[0].capacity["memory"]
            near = [node for node in rest if node.capacity["memory"] >= most * _LIKE_MEMORY]
            rest = rest[len(near) :]
            yield sorted(near, key=lambda node: node.name)


def _name(groups: list[Group]) -> None:
    taken: set[str] = {"master"}
    for group in groups:
        node = group.nodes[0]
        kind = node.product or ("gpu" if node.gpus else "cpu")
        if node.gpu_resource.startswith("nvidia.com/mig-"):
            kind = node.gpu_resource.removeprefix("nvidia.com/")
        word = re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")
        word = word if word[:1].isalpha() else f"n-{word}"
        word = word[: GROUP_NAME.longest - 3].strip("-")
        name, number = word, 1
        while name in taken:
            number += 1
            name = f"{word}-{number}"
        taken.add(name)
        group.name = name


def _describe(group: Group, others: list[NodeFacts], pods_known: bool) -> None:
    node = group.nodes[0]
    entry, say = group.entry, group.comments
    entry.update({"name": group.name, "count": len(group.nodes)})
    say[("name",)] = _some(n.name for n in group.nodes)
    _describe_cpus(group, node)
    memory = min(n.capacity["memory"] for n in group.nodes) // MI * MI
    entry["memory"] = memory_text(memory)
    if node.gpus:
        entry["gpus"] = node.gpus
        entry["gpuResource"] = node.gpu_resource
        say[("gpus",)] = _about_gpus(node)
    if node.rdma_resource:
        entry["rdma"] = {"resource": node.rdma_resource, "count": 1}
        offered = node.allocatable[node.rdma_resource]
        say[("rdma", "count")] = f"the node offers {offered}; which ones reach the others, only you"
    _describe_place(group, others)
    if pods_known:
        _describe_reserve(group, memory)


def _describe_cpus(group: Group, node: NodeFacts) -> None:
    cpus = node.capacity["cpu"] // 1000
    threads = node.threads_per_core or 1
    cores = max(1, cpus // threads)
    sockets = node.sockets or (2 if node.several_numa else 1)
    if cores % sockets:
        sockets = 1
    keys = {"sockets": sockets, "coresPerSocket": cores // sockets, "threadsPerCore": threads}
    group.entry.update(keys)
    if node.sockets is None:
        seen = "several NUMA nodes: two are likely" if node.several_numa else "lscpu shows it"
        group.comments[("sockets",)] = f"not known; {seen}"
    if node.threads_per_core is None:
        text = f"not known, so {cpus} CPUs count as cores; lscpu shows it"
        group.comments[("threadsPerCore",)] = text


def _describe_place(group: Group, others: list[NodeFacts]) -> None:
    """The label that tells these nodes from all others, and the taints that they have."""
    if others:
        label = _telling_label(group.nodes, others)
        if label:
            group.entry["nodeSelector"] = label
        else:
            text = "no label tells these nodes from others: label them and add nodeSelector"
            group.comments[("count",)] = text
    taints = group.nodes[0].taints
    if taints:
        group.entry["tolerations"] = [_toleration(taint) for taint in taints]


def _toleration(taint: Mapping[str, str]) -> dict[str, Plain]:
    value = {"value": taint["value"]} if taint.get("value") else {}
    operator = "Equal" if value else "Exists"
    return {"key": taint["key"], "operator": operator, **value, "effect": taint["effect"]}


def _telling_label(nodes: list[NodeFacts], others: list[NodeFacts]) -> dict[str, str]:
    shared = dict(
        set(nodes[0].labels.items()).intersection(*(node.labels.items() for node in nodes))
    )
    names = [name for name in _TELLING_LABELS if name in shared]
    names += sorted(name for name in shared if not _PASSING_LABELS.fullmatch(name))
    for name in names:
        if shared[name] and all(node.labels.get(name) != shared[name] for node in others):
            return {name: shared[name]}
    host = "kubernetes.io/hostname"
    return {host: nodes[0].labels[host]} if len(nodes) == 1 and host in shared else {}


def _describe_reserve(group: Group, memory: int) -> None:
    """What the kubelet keeps and what pods that come with every node request; the worst node's."""

    def kept(name: str) -> int:
        return max(node.capacity.get(name, 0) - node.allocatable.get(name, 0) for node in nodes)

    def daemons(name: str) -> int:
        return max(node.daemons.get(name, 0) for node in nodes)

    nodes = group.nodes
    cpu = kept("cpu") + daemons("cpu") + MASTER_CPU
    most = max(node.capacity["memory"] for node in nodes)
    size = -(-(most - memory + kept("memory") + daemons("memory") + MASTER_MEMORY) // MI) * MI
    if cpu >= nodes[0].capacity["cpu"] or size >= memory:
        group.comments[("memory",)] = "nothing is left beside the kubelet's and the daemons' share"
        return
    group.entry["reserved"] = {"cpu": cpu_text(cpu), "memory": memory_text(size)}
    group.comments[("reserved", "cpu")] = (
        f"kubelet {cpu_text(kept('cpu'))}, DaemonSets {cpu_text(daemons('cpu'))}, "
        f"master {cpu_text(MASTER_CPU)}"
    )


def _about_gpus(node: NodeFacts) -> str:
    parts = [node.product] if node.product else []
    size = node.labels.get("nvidia.com/gpu.memory", "")
    if size.isdecimal():
        parts.append(f"{int(size) // 1024} GiB each")
    replicas = node.labels.get("nvidia.com/gpu.replicas", "")
    if replicas.isdecimal() and int(replicas) > 1:
        parts.append(f"time-sliced: {replicas} shares of one GPU, which ranks do not run faster on")
    if node.gpu_resource.startswith("nvidia.com/mig-"):
        parts.append("MIG slices: NCCL does not connect slices of one GPU")
    if node.other_gpus:
        parts.append(f"left alone: {', '.join(node.other_gpus)}")
    return "; ".join(parts) or "one rank each"


def _some(names: Iterable[str], limit: int = 4) -> str:
    found = list(names)
    more = f" and {len(found) - limit} more" if len(found) > limit else ""
    return ", ".join(found[:limit]) + more
