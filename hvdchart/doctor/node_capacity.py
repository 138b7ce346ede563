"""Whether the nodes could ever run the pods of complete values if they were empty. Pure.

Refuse an impossible run before anything is installed. Room that may become free by itself counts:
other pods, cordons, nodes that are not ready. Nodes that do not exist yet do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hvdchart.doctor.findings import Finding
from hvdchart.doctor.needs import PodNeeds, Values, pod_needs
from hvdchart.quantity import amount_text, pluralize, room_text
from hvdchart.run.state.pod_requests import (
    is_condition_taint,
    is_daemon,
    parse_amounts,
    pod_requests,
)
from hvdchart.run.state.release import Object
from hvdchart.text import join_names
from hvdchart.values.merge import merged_groups

# The maximum number of pods on a node by the kubelet's default: pods without a request may fill it.
_MAX_NODE_PODS = 110
_CAPACITY_REMEDY = "use fewer or smaller workers"


class _Candidate(NamedTuple):
    """A node, its free resources, and whether it admits the workers."""

    node: Object
    free: Mapping[str, int]
    admits_workers: bool


class _Workers(NamedTuple):
    """A number of equal workers, and the most of them that a node may have."""

    need: PodNeeds
    number: int
    most: int


def examine_fit(nodes: Sequence[Object], pods: Iterable[Object], values: Values) -> Finding:
    """Check whether the nodes have room for the pods of a run when only daemons run on them.

    `pods` are those of all namespaces, as far as the user may read them.
    """
    problem = _impossible(nodes, list(pods), values)
    if problem:
        return Finding("nodes", "problem", problem, _CAPACITY_REMEDY)
    return Finding("nodes", "ok", f"{pluralize(len(nodes), 'node')} could run all pods at once")


def _impossible(nodes: Sequence[Object], pods: Sequence[Object], values: Values) -> str:
    """Explain why the pods can never all run; empty if they may."""
    if not all((node.get("status") or {}).get("allocatable") for node in nodes):
        # Its kubelet has not reported its resources yet.
        return ""
    groups = merged_groups(values)
    needs = pod_needs(values)
    master = needs[-1]
    lasting = [_drop_passing_taints(node) for node in nodes]
    by_node: dict[str, list[Object]] = {}
    for pod in pods:
        by_node.setdefault(str(pod.get("spec", {}).get("nodeName")), []).append(pod)
    frees = [_free(node, by_node.get(node["metadata"]["name"], [])) for node in nodes]
    for need, group in zip(needs, groups, strict=False):
        # A run with a minimum starts with that many workers, and does not wait for spares.
        number = int(group.get("minimum") or need.number - int(group.get("spares") or 0))
        most = 1 if group.get("spread") == "Required" else _MAX_NODE_PODS
        candidates = [
            _Candidate(node, free, admits_pod(node, group))
            for node, free in zip(lasting, frees, strict=True)
        ]
        usable = [candidate.free for candidate in candidates if candidate.admits_workers]
        room = sum(_count(free, need, most) for free in usable)
        if room < number:
            return _too_many(need, number, room, usable)
        workers = _Workers(need, number, most)
        if len(groups) == 1 and not _fits_beside(
            candidates, workers, master, values.get("master") or {}
        ):
            amount = _amounts_text(master)
            return (
                f"{pluralize(number, 'worker')} with {_amounts_text(need)} each leave no node room "
                f"for the master, which needs {amount}"
            )
    return ""


def _fits_beside(
    candidates: Sequence[_Candidate], workers: _Workers, master: PodNeeds, values: Values
) -> bool:
    """Return whether the master, with these values, and the workers fit, wherever the master is."""

    def room_in(free: Mapping[str, int]) -> int:
        return _count(free, workers.need, workers.most)

    room = sum(room_in(candidate.free) for candidate in candidates if candidate.admits_workers)
    for node, free, admits_workers in candidates:
        if not admits_pod(node, values) or not _count(free, master, 1):
            continue
        lost = 0
        if admits_workers:
            requested = _read_requests(master)
            left = {name: amount - requested.get(name, 0) for name, amount in free.items()}
            lost = room_in(free) - room_in(left)
        if room - lost >= workers.number:
            return True
    return False


def _too_many(pod: PodNeeds, number: int, room: int, usable: Sequence[Mapping[str, int]]) -> str:
    """Explain that a group of pods has no room, and which resource is short."""
    asked = f"{pluralize(number, 'worker')} with {_amounts_text(pod)} each"
    if not usable:
        return f"{asked} find no node whose labels and taints admit them"
    for name, wanted in _read_requests(pod).items():
        best = max(free.get(name, 0) for free in usable)
        if best < wanted:
            most = room_text(name, best)
            return f"{asked} find no node that is large enough: the most {name} of a node is {most}"
    return f"{asked} are too many: the nodes have room for {room}"


def _count(free: Mapping[str, int], pod: PodNeeds, most: int) -> int:
    """Return how many such pods fit into the free resources of a node, up to a maximum."""
    fitting = [free.get(name, 0) // wanted for name, wanted in _read_requests(pod).items()]
    return max(min([*fitting, most]), 0)


def _read_requests(pod: PodNeeds) -> dict[str, int]:
    """Return the requests of a pod, in the units of `parse_amounts`."""
    wanted = {name: str(float(amount)) for name, amount in pod.requests.items()}
    return {name: amount for name, amount in parse_amounts(wanted).items() if amount}


def _amounts_text(pod: PodNeeds) -> str:
    """Return the requests of a pod as text: 250m cpu, 3Gi memory."""
    parts = [f"{amount_text(name, amount)} {name}" for name, amount in _read_requests(pod).items()]
    return join_names(parts) or "no requests"


def _free(node: Object, pods: Iterable[Object]) -> dict[str, int]:
    """Return a node's resources for pods, without those of the daemons that always run there."""
    used: Counter[str] = Counter()
    for pod in pods:
        if is_daemon(pod):
            used.update(pod_requests(pod))
    allocatable = parse_amounts((node.get("status") or {}).get("allocatable") or {})
    return {name: amount - used[name] for name, amount in allocatable.items()}


def _drop_passing_taints(node: Object) -> Object:
    """Return a node without the taints and the cordon that keep pods off only temporarily."""
    spec = dict(node.get("spec") or {})
    taints = spec.get("taints") or []
    spec["taints"] = [taint for taint in taints if not is_condition_taint(str(taint.get("key")))]
    spec.pop("unschedulable", None)
    return {**node, "spec": spec}


def admits_pod(node: Object, pod: Mapping[str, Any]) -> bool:
    """Return whether a node's labels, taints and cordon admit a pod; its affinity is ignored."""
    labels = (node.get("metadata") or {}).get("labels") or {}
    if not (pod.get("nodeSelector") or {}).items() <= labels.items():
        return False
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return False
    tolerations = pod.get("tolerations") or []
    for taint in spec.get("taints") or []:
        is_hard = taint.get("effect") != "PreferNoSchedule"
        if is_hard and not any(_tolerates(toleration, taint) for toleration in tolerations):
            return False
    return True


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Return whether a toleration matches a taint, as Kubernetes compares them.

    Without an effect, it matches all effects; without a key, `Exists` matches all keys.
    """
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    key = toleration.get("key")
    if toleration.get("operator") == "Exists":
        return key in (None, "", taint.get("key"))
    has_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return key == taint.get("key") and has_value
