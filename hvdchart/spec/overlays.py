"""Merge several spec files, and set single keys from the command line. Pure.

Files merge as Helm merges values files: maps merge, other values replace, null deletes. Every value
keeps its place, so a message names the file, or the --set, of a wrong value.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from hvdchart.errors import SpecError
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import Node, Plain, SourcePlace, from_plain, parse_document

_STEP = re.compile(r"((?:[^.\\]|\\.)+)(?:\.|$)")


def merge_trees(
    base: Plain,
    newer: Plain,
    deletes: Callable[[KeyPath, Plain], bool] = lambda path, value: False,
    path: KeyPath = (),
    *,
    empty_clears: bool = False,
) -> Plain:
    """Merge `newer` into `base` as Helm does: maps key by key; other values replace.

    Both are plain values, or both nodes. If `deletes` returns True for a value, its key is removed.
    `deletes` also gets the value's path, which starts with `path`. With `empty_clears`, an empty
    map replaces another one. Neither argument is changed.
    """
    old = base.value if isinstance(base, Node) else base
    new = newer.value if isinstance(newer, Node) else newer
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return newer
    if empty_clears and not new:
        return newer
    merged = dict(old)
    for key, value in new.items():
        here = (*path, key)
        if deletes(here, value):
            merged.pop(key, None)
        elif key in old:
            merged[key] = merge_trees(old[key], value, deletes, here, empty_clears=empty_clears)
        else:
            merged[key] = value
    return dataclasses.replace(base, value=merged) if isinstance(base, Node) else merged


def merge_specs(trees: Sequence[Node]) -> Node:
    """Merge all trees into the first, in order; `trees` is not empty. A null deletes its key."""
    return functools.reduce(lambda base, newer: merge_trees(base, newer, _deletes), trees)


def _deletes(path: KeyPath, value: Node) -> bool:
    """Return whether a value is a null that deletes its key of a spec."""
    # Below `values`, a null is for Helm, which deletes the chart's default at this key.
    return value.value is None and (len(path) == 1 or path[0] != "values")


def apply_settings(tree: Node, settings: Iterable[str]) -> Node:
    r"""Return `tree` with each `path=value` set: nodes.0.count=8. The value is YAML; \. is a dot.

    A null deletes the key. Raises SpecError for a setting that cannot be read or has no place.
    """
    for setting in settings:
        path, equals, text = setting.partition("=")
        steps = split_path(path)
        if not equals or not steps:
            problem = f"got {setting!r}"
            raise SpecError("--set", "", problem, "path=value, such as nodes.0.count=8")
        place = SourcePlace(f"--set {setting}")
        value = parse_document(text.encode("utf-8", "surrogateescape") or b'""', str(place))
        tree = _set(tree, (), steps, _move(value, place))
    return tree


def set_key(tree: Node, steps: Sequence[str], value: Plain, place: SourcePlace) -> Node:
    """Return `tree` with a value at some steps, set as in `apply_settings`; `place` is the value's.

    Raises SpecError for a path that has no place.
    """
    return _set(tree, (), steps, from_plain(value, place))


def split_path(path: str) -> list[str]:
    """Return the keys of a dotted path; empty for an invalid path."""
    steps = []
    end = 0
    for match in _STEP.finditer(path):
        if match.start() != end:
            return []
        steps.append(re.sub(r"\\(.)", r"\1", match[1]))
        end = match.end()
    return steps if end == len(path) and not path.endswith(".") else []


def _move(node: Node, place: SourcePlace) -> Node:
    """Return `node` at the place of the setting, which has no line or column to look up."""
    value = node.value
    if isinstance(value, dict):
        value = {key: _move(child, place) for key, child in value.items()}
    elif isinstance(value, list):
        value = [_move(child, place) for child in value]
    return Node(place, value, node.text, place)


def _set(node: Node, above: tuple[str, ...], steps: Sequence[str], value: Node) -> Node:
    """Return `node`, which is at the path `above`, with `value` at `steps` below it.

    Creates missing maps on the way. Raises SpecError for a missing item of a list, and for steps
    below a value that is neither a map nor a list.
    """
    if not steps:
        return value
    step = steps[0]
    path = (*above, step)
    if isinstance(node.value, list):
        items = list(node.value)
        index = int(step) if re.fullmatch("[0-9]{1,6}", step) else len(items)
        if index >= len(items):
            problem = f"{step!r} is not an item of the list"
            last = len(items) - 1
            expected = f"a number from 0 to {last}" if items else "a list that is not empty"
            raise SpecError(str(value.place), ".".join(path), problem, expected)
        items[index] = _set(items[index], path, steps[1:], value)
        return dataclasses.replace(node, value=items)
    if not isinstance(node.value, dict):
        problem = f"{step!r} is below {node.shown}, which is neither a map nor a list"
        raise SpecError(str(value.place), ".".join(path), problem, "a path through maps and lists")
    children = dict(node.value)
    if len(steps) == 1 and _deletes(path, value):
        children.pop(step, None)
    else:
        child = children.get(step, Node(value.place, {}, key_place=value.place))
        children[step] = _set(child, path, steps[1:], value)
    return dataclasses.replace(node, value=children)
