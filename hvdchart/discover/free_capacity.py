"""Counts the ranks that fit on the discovered nodes beside the pods that run there. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from hvdchart.discover.groups import Discovery
from hvdchart.discover.nodes import NodeFacts
from hvdchart.plan.model import GroupPlan, Plan
from hvdchart.quantity import room_text
from hvdchart.text import join_names


def describe_room(discovery: Discovery, plan: Plan) -> Iterator[str]:
    """Yield which nodes of each group are free now, with the ranks that they run, and why not all.

    `plan` is of the discovery's own spec.
    """
    for group, planned in zip(discovery.groups, plan.groups, strict=True):
        shortages = {node.name: _shortage(node, planned) for node in group.nodes}
        blocked = [f"{name}: {reason}" for name, reason in shortages.items() if reason]
        free = len(group.nodes) - len(blocked)
        line = f"{group.name}: {free} of {len(group.nodes)} nodes are free, "
        line += f"{free * planned.slots} ranks"
        yield f"{line} ({join_names(blocked)})" if blocked else line


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
