"""Paths of keys and list indices through maps and lists, and the values at such paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from hvdchart.spec.yaml_tree import Node, Plain, shorten

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys of maps and indices of lists, from the root: ("nodes", 0, "count")."""


def child_at(value: Plain, step: str | int) -> Plain:
    """The child of a map or list; None when there is none, or when `value` is neither."""
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return value[step]
    return None


def value_at(value: Plain, path: Sequence[str | int]) -> Plain:
    """The value at `path`; None when it is missing or null."""
    for step in path:
        value = child_at(value, step)
    return value


def nearest_node(root: Node, path: Sequence[str | int]) -> Node:
    """The node at `path`, or the last one on the way to it that exists."""
    node = root
    for step in path:
        child = child_at(node.value, step)
        if child is None:
            break
        node = child
    return node


def dotted(path: Sequence[str | int]) -> str:
    """A path as messages write it: nodes[0].count."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{shorten(step)}"
    return text.removeprefix(".")
