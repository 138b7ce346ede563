"""Writes the spec of the discovered nodes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hvd_pods.shared.untrusted import one_line
from hvdchart.discover.groups import discover_groups
from hvdchart.discover.nodes import NodeFacts
from hvdchart.errors import ClusterError
from hvdchart.plan.rules import Reason
from hvdchart.spec.load import parse_spec
from hvdchart.values.render import dump

# What the head of a spec with groups of both kinds says.
MIXED_GROUPS_NOTE = "GPU and CPU nodes: a run uses one kind, so delete the groups of the other"


def spec_text(
    nodes: Sequence[NodeFacts],
    name: str,
    selector: str = "",
    *,
    are_pods_known: bool = True,
) -> str:
    """Return a spec of these nodes with comments.

    `selector` is the label selector that the nodes were listed with. Raises ClusterError when no
    node can be used, and SpecError when `name` is not a valid name of a run.
    """
    discovery = discover_groups(nodes, _selected_labels(selector), are_pods_known=are_pods_known)
    if not discovery.groups:
        raise ClusterError("\n  ".join(["no node can be used", *discovery.notes[: len(nodes)]]))
    notes = list(discovery.notes)
    if len({bool(group.nodes[0].gpus) for group in discovery.groups}) > 1:
        notes.append(MIXED_GROUPS_NOTE)
    # Keep text from nodes on one line: a condition's message could otherwise add keys to the spec.
    comments = {path: Reason(one_line(text), "") for path, text in discovery.comments().items()}
    head = ["Discovered by `hvdchart discover`: groups of equal nodes.", *notes]
    text = "".join(f"# {one_line(line)}\n" for line in head) + dump(discovery.spec(name), comments)
    # The result must be a valid spec except for the missing image.
    parse_spec(text.encode(), "the discovered spec")
    return text


def _selected_labels(selector: str) -> dict[str, str]:
    """Return the labels that a selector requires by value (a=b, a==b); ignore other terms."""
    terms = (term.replace("==", "=").partition("=") for term in selector.split(","))
    return {
        name.strip(): value.strip()
        for name, equals, value in terms
        if equals and not name.endswith("!")
    }
