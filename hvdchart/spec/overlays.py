"""Specs laid over one another, and single keys set on the command line. Pure.

The laying over is Helm's: maps merge, all else replaces, null deletes. Every value keeps its place,
so a message names the file (or the --set) that the wrong value came from.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from hvdchart.errors import SpecError
from hvdchart.spec.yaml_tree import Node, Place, parse

_CHART_VALUES = "values"
_STEP = re.compile(r"((?:[^.\\]|\\.)+)(?:\.|$)")


def overlaid(trees: Sequence[Node]) -> Node:
    """All trees laid over the first, later ones winning."""
    result = trees[0]
    for tree in trees[1:]:
        result = _laid_over(result, tree, top=True)
    return result


def _laid_over(base: Node, over: Node, top: bool = False, keep_nulls: bool = False) -> Node:
    if not isinstance(base.value, dict) or not isinstance(over.value, dict):
        return over
    merged = dict(base.value)
    for key, child in over.value.items():
        if child.value is None and not keep_nulls:
            merged.pop(key, None)
        elif key in merged:
            # Below `values` a null is for Helm to act on: it deletes what the chart has there.
            keep = keep_nulls or (top and key == _CHART_VALUES)
            merged[key] = _laid_over(merged[key], child, keep_nulls=keep)
        else:
            merged[key] = child
    return dataclasses.replace(base, value=merged)


def with_settings(tree: Node, settings: Iterable[str]) -> Node:
    r"""`tree` with each `path=value` set: nodes.0.count=8. The value is YAML; \. is a dot."""
    for setting in settings:
        path, equals, text = setting.partition("=")
        place = Place(f"--set {setting}")
        steps = _steps(path)
        if not equals or not steps:
            problem = f"got {setting!r}"
            raise SpecError("--set", "", problem, "path=value, such as nodes.0.count=8")
        value = parse(text.encode("utf-8", "surrogateescape") or b'""', f"--set {setting}")
        tree = _set(tree, steps, _moved(value, place), path, place)
    return tree


def _steps(path: str) -> list[str]:
    steps, end = [], 0
    for match in _STEP.finditer(path):
        if match.start() != end:
            return []
        steps.append(re.sub(r"\\(.)", r"\1", match[1]))
        end = match.end()
    return steps if end == len(path) and not path.endswith(".") else []


def _moved(node: Node, place: Place) -> Node:
    """`node` at the place of the setting: a line and column there would say nothing."""
    value = node.value
    if isinstance(value, dict):
        value = {key: _moved(child, place) for key, child in value.items()}
    elif isinstance(value, list):
        value = [_moved(child, place) for child in value]
    return Node(place, value, node.text, place)


def _set(node: Node, steps: list[str], value: Node, path: str, place: Place) -> Node:
    if not steps:
        return value
    step, *rest = steps
    if isinstance(node.value, list):
        index = int(step) if re.fullmatch("[0-9]{1,6}", step) else -1
        if not 0 <= index < len(node.value):
            expected = (
                f"a number from 0 to {len(node.value) - 1}" if node.value else "an empty list"
            )
            raise SpecError(str(place), path, f"{step!r} is not an item of the list", expected)
        items = list(node.value)
        items[index] = _set(items[index], rest, value, path, place)
        return dataclasses.replace(node, value=items)
    if not isinstance(node.value, dict):
        problem = f"{step!r} is below {node.shown}, which holds nothing"
        raise SpecError(str(place), path, problem, "a path through maps and lists")
    children = dict(node.value)
    if not rest and value.value is None and not path.startswith(f"{_CHART_VALUES}."):
        children.pop(step, None)
    else:
        child = children.get(step, Node(place, {}, key_place=place))
        children[step] = _set(child, rest, value, path, place)
    return dataclasses.replace(node, value=children)
