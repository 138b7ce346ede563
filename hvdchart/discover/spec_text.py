"""A discovery as the text of a spec. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hvdchart.discover.fit import fits, fitted, summary
from hvdchart.discover.groups import Discovery, discover
from hvdchart.discover.nodes import NodeFacts
from hvdchart.errors import ClusterError
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.plan.rules import Reason
from hvdchart.spec.load import parse_spec
from hvdchart.values.render import dump


def spec_text(
    nodes: Sequence[NodeFacts],
    name: str,
    fit: int | None = None,
    selector: str = "",
    *,
    pods_known: bool = True,
) -> str:
    """The spec of these nodes, commented; with `fit`, of nodes for so many ranks that are free.

    `selector` is the label selector that took the nodes.

    Raises ClusterError when no node can be used or the ranks do not fit, SpecError when `name` is
    no name for a run.
    """
    found = discover(nodes, _labels(selector), pods_known=pods_known)
    if not found.groups:
        raise ClusterError("\n  ".join(["no node can be used", *found.notes[: len(nodes)]]))
    notes = list(found.notes)
    if pods_known:
        free = fits(found, _plan(found, name))
        notes += summary(free)
        found = found if fit is None else fitted(found, free, fit)
    if len({bool(group.nodes[0].gpus) for group in found.groups}) > 1:
        notes.append("GPU and CPU nodes: a run is of one kind, so delete the groups of the other")
    text = _text(found, name, notes)
    # What is written must be a spec that every other command takes.
    parse_spec(text.encode(), "the discovered spec")
    return text


def _labels(selector: str) -> dict[str, str]:
    """The labels that a selector asks for by value; its other terms name none."""
    terms = (term.replace("==", "=").partition("=") for term in selector.split(","))
    return {
        name.strip(): value.strip()
        for name, equals, value in terms
        if equals and not name.endswith("!")
    }


def _plan(found: Discovery, name: str) -> Plan:
    return make_plan(parse_spec(dump(found.spec(name), {}).encode(), "the discovered spec"))


def _text(found: Discovery, name: str, notes: Sequence[str]) -> str:
    comments = {path: Reason(text, "") for path, text in found.comments().items()}
    head = [
        "Discovered by `python -m hvdchart discover`: groups of like nodes.",
        *notes,
    ]
    return "".join(f"# {line}\n" for line in head) + dump(found.spec(name), comments)
