"""Merges several spec files, and sets single keys from the command line. Pure.

Files merge as Helm merges values files: maps merge, anything else replaces, null deletes. Every
value keeps its place, so a message names the file, or the --set, that a wrong value came from.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hvdchart.errors import SpecError
from hvdchart.spec.paths import KeyPath
from hvdchart.spec.yaml_tree import Node, Place, parse

T = TypeVar("T")
_STEP = re.compile(r"((?:[^.\\]|\\.)+)(?:\.|$)")


def merge(
    base: T,
    newer: T,
    entries: Callable[[T], Mapping[str, T] | None],
    rebuild: Callable[[T, dict[str, T]], T],
    deletes: Callable[[KeyPath, T], bool] = lambda path, value: False,
    path: KeyPath = (),
) -> T:
    """`newer` merged into `base` as Helm merges: maps key by key, anything else replaces.

    `entries` gives the keys of a map, and None for anything else; `rebuild` makes the merged map
    from the older one; a value that `deletes` removes its key. Neither argument is changed.
    """
    old, new = entries(base), entries(newer)
    if old is None or new is None:
        return newer
    merged = dict(old)
    for key, value in new.items():
        here = (*path, key)
        if deletes(here, value):
            merged.pop(key, None)
        elif key in old:
            merged[key] = merge(old[key], value, entries, rebuild, deletes, here)
        else:
            merged[key] = value
    return rebuild(base, merged)


def merge_specs(trees: Sequence[Node]) -> Node:
    """All trees merged into the first, in order; `trees` is not empty. A null deletes its key."""
    return functools.reduce(
        lambda base, newer: merge(base, newer, _entries, _rebuild, _deletes), trees
    )


def _entries(node: Node) -> Mapping[str, Node] | None:
    return node.value if isinstance(node.value, dict) else None


def _rebuild(base: Node, entries: dict[str, Node]) -> Node:
    return dataclasses.replace(base, value=entries)


def _deletes(path: KeyPath, value: Node) -> bool:
    # Below `values` a null is for Helm, which deletes the chart's default there.
    return value.value is None and (len(path) == 1 or path[0] != "values")


def apply_settings(tree: Node, settings: Iterable[str]) -> Node:
    r"""`tree` with each `path=value` set: nodes.0.count=8. The value is YAML; \. is a dot.

    A null deletes the key. Raises SpecError for a setting that cannot be read or has no place.
    """
    for setting in settings:
        path, equals, text = setting.partition("=")
        steps = split_path(path)
        if not equals or not steps:
            problem = f"got {setting!r}"
            raise SpecError("--set", "", problem, "path=value, such as nodes.0.count=8")
        place = Place(f"--set {setting}")
        value = parse(text.encode("utf-8", "surrogateescape") or b'""', str(place))
        tree = _Setting(place, path, steps, _move(value, place)).apply(tree)
    return tree


def split_path(path: str) -> list[str]:
    """The keys of a dotted path; empty when it is not one."""
    steps, end = [], 0
    for match in _STEP.finditer(path):
        if match.start() != end:
            return []
        steps.append(re.sub(r"\\(.)", r"\1", match[1]))
        end = match.end()
    return steps if end == len(path) and not path.endswith(".") else []


def _move(node: Node, place: Place) -> Node:
    """`node` at the place of the setting: it has no line or column that a person could look up."""
    value = node.value
    if isinstance(value, dict):
        value = {key: _move(child, place) for key, child in value.items()}
    elif isinstance(value, list):
        value = [_move(child, place) for child in value]
    return Node(place, value, node.text, place)


@dataclass(frozen=True)
class _Setting:
    """One `path=value`; `steps` are the keys and indices of `path`."""

    place: Place
    path: str
    steps: list[str]
    value: Node

    def apply(self, node: Node, depth: int = 0) -> Node:
        """`node`, which stands `depth` steps below the root, with the value set."""
        if depth == len(self.steps):
            return self.value
        step = self.steps[depth]
        if isinstance(node.value, list):
            items = list(node.value)
            index = self._index(step, len(items))
            items[index] = self.apply(items[index], depth + 1)
            return dataclasses.replace(node, value=items)
        if not isinstance(node.value, dict):
            problem = f"{step!r} is below {node.shown}, which is neither a map nor a list"
            raise SpecError(str(self.place), self.path, problem, "a path through maps and lists")
        children = dict(node.value)
        if depth == len(self.steps) - 1 and _deletes(tuple(self.steps), self.value):
            children.pop(step, None)
        else:
            child = children.get(step, Node(self.place, {}, key_place=self.place))
            children[step] = self.apply(child, depth + 1)
        return dataclasses.replace(node, value=children)

    def _index(self, step: str, length: int) -> int:
        index = int(step) if re.fullmatch("[0-9]{1,6}", step) else length
        if index >= length:
            problem = f"{step!r} is not an item of the list"
            expected = f"a number from 0 to {length - 1}" if length else "a list that is not empty"
            raise SpecError(str(self.place), self.path, problem, expected)
        return index
