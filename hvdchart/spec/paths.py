"""Paths of keys and list indices through maps and lists, and the values at such paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from hvdchart.spec.yaml_tree import Node, Plain, shorten

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys of maps and indices of lists, from the root: ("nodes", 0, "count")."""


def child_at(value: Plain, step: str | int) -> Plain:
    """Return the child of a map or list; None if there is none, or for any other `value`."""
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return value[step]
    return None


def value_at(value: Plain, path: Sequence[str | int]) -> Plain:
    """Return the value at `path`; None if it is missing or null."""
    for step in path:
        value = child_at(value, step)
    return value


def nearest_node(root: Node, path: Sequence[str | int]) -> Node:
    """Return the node at `path`, or the last existing one on the way to it."""
    node = root
    for step in path:
        child = child_at(node.value, step)
        if child is None:
            break
        node = child
    return node


def format_path(path: Sequence[str | int]) -> str:
    """Format a path for messages: nodes[0].count."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{shorten(step)}"
    return text.removeprefix(".")
