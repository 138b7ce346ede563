"""Counts the ranks that fit on the discovered nodes beside the pods that run there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hvdchart.discover.groups import Discovery, Group
from hvdchart.discover.nodes import NodeFacts
from hvdchart.errors import ClusterError
from hvdchart.plan.model import GroupPlan, Plan
from hvdchart.quantity import room_text
from hvdchart.text import join_names


@dataclass(frozen=True)
class Fit:
    """One group: a worker's slots, the free nodes, and why other nodes are not free."""

    group: Group
    slots: int
    free: tuple[str, ...]
    blocked: tuple[tuple[str, str], ...]

    @property
    def ranks(self) -> int:
        """Return how many ranks could start now."""
        return len(self.free) * self.slots

    def __str__(self) -> str:
        nodes = len(self.group.nodes)
        line = f"{self.group.name}: {len(self.free)} of {nodes} nodes are free, {self.ranks} ranks"
        if self.blocked:
            blocked = join_names(f"{name}: {reason}" for name, reason in self.blocked)
            line += f" ({blocked})"
        return line


def check_groups(discovery: Discovery, plan: Plan) -> list[Fit]:
    """Return the current fit of each group; `plan` is of the discovery's own spec."""
    fits = []
    for group, planned in zip(discovery.groups, plan.groups, strict=True):
        reasons = {node.name: _shortage(node, planned) for node in group.nodes}
        free = tuple(name for name, reason in reasons.items() if not reason)
        blocked = tuple((name, reason) for name, reason in reasons.items() if reason)
        fits.append(Fit(group, planned.slots, free, blocked))
    return fits


def fit_ranks(discovery: Discovery, fits: Sequence[Fit], ranks: int) -> Discovery:
    """Reduce the discovery to one group, with as many nodes as exactly `ranks` ranks need.

    Prefers a group with GPUs, then the group with the fewest nodes. Raises ClusterError with the
    reasons when the ranks do not fit.
    """
    enough = [fit for fit in fits if fit.ranks >= ranks and ranks % fit.slots == 0]
    if not enough:
        most = max(fit.ranks for fit in fits)
        head = f"{ranks} ranks do not fit now: there is room for {most} in a group of equal nodes"
        if most >= ranks:
            slots = sorted({fit.slots for fit in fits})
            uneven = " or ".join(map(str, slots))
            head = f"{ranks} ranks do not fit: each node runs {uneven} ranks"
        raise ClusterError("\n  ".join([head, *map(str, fits)]))
    best = min(enough, key=lambda fit: (not fit.group.nodes[0].gpus, ranks // fit.slots))
    group = best.group
    entry = {**group.entry, "count": ranks // best.slots}
    free = f"{len(best.free)} of {len(group.nodes)} nodes of the group are free now"
    comments = {**group.comments, ("count",): free}
    return replace(discovery, groups=(Group(group.name, group.nodes, entry, comments),))


def _shortage(node: NodeFacts, plan: GroupPlan) -> str:
    """Return what a node lacks for a worker now; empty if it has room for one."""
    needs = {}
    if plan.cpu:
        needs["cpu"] = plan.cpu
    if plan.memory:
        needs["memory"] = plan.memory
    if plan.group.gpus:
        needs[plan.group.gpu_resource] = plan.group.gpus
    if plan.group.rdma:
        needs[plan.group.rdma.resource] = plan.group.rdma.count
    for name, wanted in needs.items():
        free = node.free(name)
        if free < wanted:
            return f"{room_text(name, free)} {name} free, {room_text(name, wanted)} needed"
    return ""
