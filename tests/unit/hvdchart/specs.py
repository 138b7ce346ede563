"""Small specs, and their plans."""

from __future__ import annotations

from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from hvdchart.spec.model import Spec

HEAD = "apiVersion: hvdchart/v1\nimage: {repository: a}\ntrain: {command: [a]}\n"


def read(nodes: str, rest: str = "", name: str = "run") -> Spec:
    return parse_spec(f"{HEAD}name: {name}\nnodes: [{nodes}]\n{rest}")


def planned(nodes: str, rest: str = "") -> Plan:
    return make_plan(read(nodes, rest))
