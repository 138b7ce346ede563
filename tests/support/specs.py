"""Small specs, and their plans."""

from __future__ import annotations

from typing import Any

from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec, read_spec
from hvdchart.spec.model import Spec
from hvdchart.spec.yaml_tree import parse_document
from hvdchart.values.check_values import checked_values

HEAD = "apiVersion: hvdchart/v1\nimage: {repository: a}\ntrain: {command: [a]}\n"
WITHOUT_IMAGE = "apiVersion: hvdchart/v1\nname: run\ntrain: {command: [a]}\n"
NAMED = f"{WITHOUT_IMAGE}image: {{repository: a}}\n"
NODE = "nodes: [{name: a, count: 1, coresPerSocket: 4, memory: 8Gi, nodeSelector: {k: v}}]\n"


def spec_of_nodes(nodes: str, rest: str = "", name: str = "run") -> Spec:
    return parse_spec(f"{HEAD}name: {name}\nnodes: [{nodes}]\n{rest}")


def plan_of_nodes(nodes: str, rest: str = "") -> Plan:
    return make_plan(spec_of_nodes(nodes, rest))


def plan_text(text: str) -> Plan:
    """Return the plan of a spec's text, with the places of its values in `a.yaml`."""
    tree = parse_document(text.encode(), "a.yaml")
    return make_plan(read_spec(tree), tree)


def values_of_text(text: str) -> dict[str, Any]:
    head = WITHOUT_IMAGE if "\nimage:" in text else NAMED
    return checked_values(plan_text(head + text))
