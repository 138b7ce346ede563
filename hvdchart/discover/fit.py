"""How many ranks would fit on the discovered nodes now, beside what is requested already. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hvdchart.discover.groups import Discovery, Group
from hvdchart.discover.nodes import NodeFacts
from hvdchart.errors import ClusterError
from hvdchart.plan.model import GroupPlan, Plan
from hvdchart.quantity import cpu_text, memory_text


@dataclass(frozen=True)
class Fit:
    """One group: its workers' ranks, the nodes that could take one now, and why others cannot."""

    group: Group
    slots: int
    free: tuple[str, ...]
    blocked: tuple[tuple[str, str], ...]

    @property
    def ranks(self) -> int:
        """Ranks that would start now."""
        return len(self.free) * self.slots


def fits(discovery: Discovery, plan: Plan) -> list[Fit]:
    """For each group what fits now; `plan` is that of the discovery's own spec."""
    return [_fit(g, p) for g, p in zip(discovery.groups, plan.groups, strict=True)]


def fitted(discovery: Discovery, found: Sequence[Fit], ranks: int) -> Discovery:
    """The discovery cut to groups and counts that make just so many ranks, on free nodes.

    One group alone is best, then groups of one kind (GPU or CPU). Raises ClusterError with what
    is in the way when they do not fit.
    """
    alone = [f for f in found if f.ranks >= ranks and ranks % f.slots == 0]
    if alone:
        best = min(alone, key=lambda fit: (not _has_gpus(fit), ranks // fit.slots))
        return _cut(discovery, [(best, ranks // best.slots)])
    for kind in (True, False):
        chosen, left = [], ranks
        for fit in sorted(found, key=lambda fit: -fit.slots):
            count = min(len(fit.free), left // fit.slots) if _has_gpus(fit) is kind else 0
            if count:
                chosen.append((fit, count))
                left -= count * fit.slots
        if left == 0 and chosen:
            return _cut(discovery, chosen)
    raise ClusterError(_why_not(found, ranks))


def summary(found: Sequence[Fit]) -> list[str]:
    """One line a group: what fits now, and what is in the way."""
    lines = []
    for fit in found:
        nodes = len(fit.group.nodes)
        line = f"{fit.group.name}: {len(fit.free)} of {nodes} nodes are free, {fit.ranks} ranks"
        blocked = "; ".join(f"{name}: {why}" for name, why in fit.blocked[:3])
        more = f"; {len(fit.blocked) - 3} more" if len(fit.blocked) > 3 else ""
        lines.append(line + (f" ({blocked}{more})" if blocked else ""))
    return lines


def _fit(group: Group, plan: GroupPlan) -> Fit:
    free, blocked = [], []
    for node in group.nodes:
        why = _in_the_way(node, plan)
        if why:
            blocked.append((node.name, why))
        else:
            free.append(node.name)
    return Fit(group, plan.slots, tuple(free), tuple(blocked))


def _in_the_way(node: NodeFacts, plan: GroupPlan) -> str:
    needs = {"cpu": plan.cpu or 0, "memory": plan.memory or 0}
    if plan.group.gpus:
        needs[plan.group.gpu_resource] = plan.group.gpus
    if plan.group.rdma:
        needs[plan.group.rdma.resource] = plan.group.rdma.count
    for name, wanted in needs.items():
        left = node.free(name)
        if left < wanted:
            return f"{_shown(name, left)} {name} free of {_shown(name, wanted)}"
    return ""


def _shown(name: str, size: int) -> str:
    if name == "cpu":
        return cpu_text(max(size, 0))
    return memory_text(max(size, 0) // 2**20 * 2**20) if name == "memory" else str(max(size, 0))


def _has_gpus(fit: Fit) -> bool:
    return bool(fit.group.nodes[0].gpus)


def _cut(discovery: Discovery, chosen: list[tuple[Fit, int]]) -> Discovery:
    groups = []
    for fit, count in chosen:
        entry = {**fit.group.entry, "count": count}
        comments = dict(fit.group.comments)
        comments["count",] = f"{len(fit.free)} of {len(fit.group.nodes)} such nodes are free now"
        groups.append(Group(fit.group.name, fit.group.nodes, entry, comments))
    return replace(discovery, groups=tuple(groups))


def _why_not(found: Sequence[Fit], ranks: int) -> str:
    steps = sorted({fit.slots for fit in found})
    uneven = [str(step) for step in steps if ranks % step]
    most = max((sum(f.ranks for f in found if _has_gpus(f) is k) for k in (True, False)), default=0)
    head = f"{ranks} ranks do not fit now: {most} do"
    if most >= ranks and uneven:
        head = f"{ranks} ranks do not fit: nodes run {', '.join(uneven)} ranks each"
    return "\n  ".join([head, *summary(found)])
