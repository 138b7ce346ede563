"""Counts the ranks that fit on the discovered nodes beside the pods that run there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hvdchart.discover.groups import Discovery, Group
from hvdchart.discover.nodes import NodeFacts
from hvdchart.errors import ClusterError
from hvdchart.plan.model import GroupPlan, Plan
from hvdchart.quantity import MI, amount_text, pluralize
from hvdchart.spec.yaml_tree import Plain
from hvdchart.text import join_names


@dataclass(frozen=True)
class Fit:
    """One group: a worker's slots, the nodes free for one now, and why others are not."""

    group: Group
    slots: int
    free: tuple[str, ...]
    blocked: tuple[tuple[str, str], ...]
    spares: int = 0

    @property
    def most(self) -> int:
        """How many workers with ranks could start now."""
        return max(len(self.free) - self.spares, 0)

    @property
    def ranks(self) -> int:
        """How many ranks could start now."""
        return self.most * self.slots


def check_groups(discovery: Discovery, plan: Plan, spares: int) -> list[Fit]:
    """What fits now for each group, with spares; `plan` is that of the discovery's own spec."""
    fits = []
    for group, planned in zip(discovery.groups, plan.groups, strict=True):
        reasons = {node.name: _shortage(node, planned) for node in group.nodes}
        free = tuple(name for name, reason in reasons.items() if not reason)
        blocked = tuple((name, reason) for name, reason in reasons.items() if reason)
        fits.append(Fit(group, planned.slots, free, blocked, spares))
    return fits


def keep_spares(discovery: Discovery, spares: int) -> Discovery:
    """The discovery with spares in each group that is large enough; ClusterError if none is."""
    large = [group for group in discovery.groups if len(group.nodes) > spares]
    if not large:
        sizes = join_names(f"{group.name}: {len(group.nodes)}" for group in discovery.groups)
        raise ClusterError(f"no group has more than {spares} nodes, the spares ({sizes})")
    groups = [
        replace(group, entry=_entry(group, len(group.nodes) - spares, spares))
        if group in large
        else group
        for group in discovery.groups
    ]
    return replace(discovery, groups=tuple(groups))


def fit_ranks(discovery: Discovery, fits: Sequence[Fit], ranks: int) -> Discovery:
    """The discovery reduced to free nodes for exactly `ranks` ranks.

    A single group is preferred, else groups of one kind (GPU or CPU). Raises ClusterError with
    the reasons when the ranks do not fit.
    """
    alone = [f for f in fits if f.ranks >= ranks and ranks % f.slots == 0]
    if alone:
        best = min(alone, key=lambda fit: (not _has_gpus(fit), ranks // fit.slots))
        return _reduce(discovery, [(best, ranks // best.slots)])
    for kind in (True, False):
        chosen, left = [], ranks
        for fit in sorted(fits, key=lambda fit: -fit.slots):
            count = min(fit.most, left // fit.slots) if _has_gpus(fit) is kind else 0
            if count:
                chosen.append((fit, count))
                left -= count * fit.slots
        if left == 0:
            return _reduce(discovery, chosen)
    uneven = [str(slots) for slots in sorted({fit.slots for fit in fits}) if ranks % slots]
    most = max(sum(f.ranks for f in fits if _has_gpus(f) is kind) for kind in (True, False))
    head = f"{ranks} ranks do not fit now: there is room for {most}"
    if most >= ranks and uneven:
        head = f"{ranks} ranks do not fit: each node runs {' or '.join(uneven)} ranks"
    raise ClusterError("\n  ".join([head, *summarize(fits)]))


def summarize(fits: Sequence[Fit]) -> list[str]:
    """One line for each group: what fits now, and why not more."""
    lines = []
    for fit in fits:
        nodes = len(fit.group.nodes)
        line = f"{fit.group.name}: {len(fit.free)} of {nodes} nodes are free, {fit.ranks} ranks"
        line += f" and {pluralize(fit.spares, 'spare')}" if fit.spares else ""
        blocked = join_names(f"{name}: {reason}" for name, reason in fit.blocked)
        lines.append(line + (f" ({blocked})" if blocked else ""))
    return lines


def _shortage(node: NodeFacts, plan: GroupPlan) -> str:
    both = (("cpu", plan.cpu), ("memory", plan.memory))
    needs = {name: wanted for name, wanted in both if wanted}
    if plan.group.gpus:
        needs[plan.group.gpu_resource] = plan.group.gpus
    if plan.group.rdma:
        needs[plan.group.rdma.resource] = plan.group.rdma.count
    for name, wanted in needs.items():
        free = node.free(name)
        if free < wanted:
            return f"{_quantity(name, free)} {name} free, {_quantity(name, wanted)} needed"
    return ""


def _quantity(name: str, size: int) -> str:
    unit = MI if name == "memory" else 1
    return amount_text(name, max(size, 0) // unit * unit)


def _has_gpus(fit: Fit) -> bool:
    return bool(fit.group.nodes[0].gpus)


def _reduce(discovery: Discovery, chosen: list[tuple[Fit, int]]) -> Discovery:
    groups = []
    for fit, count in chosen:
        entry = _entry(fit.group, count, fit.spares)
        comments = dict(fit.group.comments)
        comments["count",] = (
            f"{len(fit.free)} of {len(fit.group.nodes)} nodes of the group are free now"
        )
        groups.append(Group(fit.group.name, fit.group.nodes, entry, comments))
    return replace(discovery, groups=tuple(groups))


def _entry(group: Group, count: int, spares: int) -> dict[str, Plain]:
    numbers: dict[str, Plain] = {"name": group.name, "count": count}
    return {**numbers, **({"spares": spares} if spares else {}), **group.entry, **numbers}
