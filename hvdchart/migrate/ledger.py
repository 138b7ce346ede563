"""A file that is being migrated: what was said where, what became of it, and what is still untold.

Every value of the input ends as a `Line`; `rest` sweeps up those that no rule spoke about.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hvdchart.errors import SpecError
from hvdchart.spec.load import dotted, place_of
from hvdchart.spec.validate import Path
from hvdchart.spec.yaml_tree import Node, Plain, shorten
from hvdchart.values.chart import chart_dir, resolved

Fate: TypeAlias = Literal["kept", "renamed", "changed", "dropped"]
FATES: tuple[Fate, ...] = ("kept", "renamed", "changed", "dropped")
NewPath: TypeAlias = tuple[str, ...]
_SAME = object()


@dataclass(frozen=True)
class Line:
    """What became of one value: `old` and `new` are dotted paths, `new` is empty when dropped."""

    fate: Fate
    old: str
    new: str = ""
    why: str = ""


class Reading:
    """The input with its lines so far, and the values that grow from it.

    `schema` is the chart's: a value that it does not take is refused at the value's place in the
    input, and one that it has no key for is dropped with that reason.
    """

    def __init__(self, root: Node, schema: Mapping[str, Any]) -> None:
        self.root = root
        self.tree: Plain = root.plain
        self.values: dict[str, Plain] = {}
        self.lines: list[Line] = []
        self.checks: list[str] = []
        self._schema = schema
        self._told: set[Path] = set()

    def find(self, *path: str | int) -> Plain:
        """The value at `path`; None when it is missing or null."""
        value = self.tree
        for step in path:
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and step < len(value):
                value = value[step]
            else:
                return None
        return value

    def map_at(self, *path: str | int) -> dict[str, Plain]:
        """The map at `path`, empty when missing; raises SpecError for anything else."""
        return self._expect(path, dict, "a map") or {}

    def list_at(self, *path: str | int) -> list[Plain]:
        """The list at `path`, empty when missing; raises SpecError for anything else."""
        return self._expect(path, list, "a list") or []

    def text_at(self, *path: str | int) -> str:
        """The text at `path` as it was written, numbers too; empty when missing."""
        value = self.find(*path)
        if value is None:
            return ""
        if isinstance(value, dict | list):
            raise self.refuse(path, "text")
        return value if isinstance(value, str) else node_at(self.root, path).text

    def number_at(self, *path: str | int) -> int | None:
        """The whole number at `path`; Helm and kubectl read a quoted one too."""
        value = self.find(*path)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self.refuse(path, "a whole number")

    def is_true(self, *path: str | int) -> bool:
        """Whether `path` says yes, as the YAML 1.1 of Helm and kubectl reads it."""
        value = self.find(*path)
        if isinstance(value, str) and value.lower() in ("yes", "on", "true", "y"):
            return True
        if value is None or isinstance(value, bool):
            return bool(value)
        if isinstance(value, str) and value.lower() in ("no", "off", "false", "n"):
            return False
        raise self.refuse(path, "true or false")

    def refuse(self, path: Path, expected: str) -> SpecError:
        """The error for a value of the input that is not what its key takes."""
        found = shorten(json.dumps(self.find(*path), ensure_ascii=False))
        return SpecError(str(place_of(self.root, path)), dotted(path), f"got {found}", expected)

    def _expect(self, path: Path, kind: type, expected: str) -> Any:
        value = self.find(*path)
        if value is None or isinstance(value, kind):
            return value
        raise self.refuse(path, expected)

    def keep(self, old: Path, new: NewPath, why: str = "", value: Plain = _SAME) -> None:
        """Put the value at `old` (or `value`, made from it) at `new` in the chart's values."""
        found = self.find(*old)
        if found is None:
            self._nulls(old)
            return
        if not self.takes(new):
            self.drop(old, f"the chart has no {dotted(new)}" + (f": {why}" if why else ""))
            return
        if value is _SAME:
            fate: Fate = "kept" if tuple(old) == new else "renamed"
            self._nulls(old)
            value = without_nulls(found)
        else:
            fate = "kept" if value == found and tuple(old) == new else "changed"
            if value == found and tuple(old) != new:
                fate = "renamed"
        self.put(new, value, old)
        for leaf in leaves(found, old):
            behind = leaf[len(old) :] if fate != "changed" else ()
            self._tell(Line(fate, dotted(leaf), dotted((*new, *behind)), why), leaf)

    def put(self, new: NewPath, value: Plain, old: Path) -> None:
        """Set a value of the chart; raises SpecError at `old` when the chart does not take it."""
        problem = refusal(self._schema, new, value)
        if problem:
            raise SpecError(
                str(place_of(self.root, old)), dotted(old),
                f"the chart's {dotted(new)} does not take it: {shorten(problem, 160)}",
                f"what {dotted(new)} takes",
            )  # fmt: skip
        here = self.values
        for step in new[:-1]:
            here = here.setdefault(step, {})
        here[new[-1]] = copy.deepcopy(value)

    def change(self, old: Path, new: NewPath, why: str) -> None:
        """Say that the value at `old` went into `new`, which the caller puts together."""
        for leaf in leaves(self.find(*old), old):
            self._tell(Line("changed", dotted(leaf), dotted(new), why), leaf)

    def drop(self, old: Path, why: str) -> None:
        """Say why the value at `old` has no place; nothing when there is none."""
        if self.has(old):
            for leaf in leaves(self.find(*old), old):
                self._tell(Line("dropped", dotted(leaf), "", why), leaf)

    def note(self, old: Path, what: str, new: str, why: str) -> None:
        """Add a line about a part of a value, such as one option of a command line."""
        fate: Fate = "changed" if new else "dropped"
        self.lines.append(Line(fate, f"{dotted(old)}: {what}", new, why))

    def check(self, text: str) -> None:
        """Add something that only a person can check."""
        if text not in self.checks:
            self.checks.append(text)

    def takes(self, new: NewPath) -> bool:
        """Whether the chart has a key at `new`."""
        return schema_at(self._schema, new) is not None

    def has(self, path: Path) -> bool:
        """Whether the input says anything at `path`, null included."""
        above = self.find(*path[:-1]) if path else None
        step = path[-1] if path else ""
        if isinstance(above, list):
            return isinstance(step, int) and step < len(above)
        return isinstance(above, dict) and step in above

    def rest(self, why: str) -> None:
        """Drop, with this reason, every value that no line has told of."""
        for leaf in leaves(self.tree, ()):
            if leaf not in self._told:
                null = self.find(*leaf) is None
                said = "null says nothing" if null else why
                self._tell(Line("dropped", dotted(leaf), "", said), leaf)

    def _nulls(self, path: Path) -> None:
        if self.has(path):
            for leaf in leaves(self.find(*path), path):
                if self.find(*leaf) is None:
                    self._tell(Line("dropped", dotted(leaf), "", "null says nothing"), leaf)

    def _tell(self, line: Line, leaf: Path) -> None:
        if leaf not in self._told:
            self._told.add(leaf)
            self.lines.append(line)


def values_schema() -> Mapping[str, Any]:
    """The JSON schema of the chart's values."""
    schema: dict[str, Any] = json.loads((chart_dir() / "values.schema.json").read_text("utf-8"))
    return schema


def leaves(value: Plain, path: Path) -> Iterator[Path]:
    """The paths of all scalars and of all empty maps and lists."""
    children: Any = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    empty = True
    for step, child in children:
        empty = False
        yield from leaves(child, (*path, step))
    if empty:
        yield path


def without_nulls(value: Plain) -> Plain:
    """`value` without the nulls in its maps and lists."""
    if isinstance(value, dict):
        return {k: without_nulls(child) for k, child in value.items() if child is not None}
    if isinstance(value, list):
        return [without_nulls(child) for child in value if child is not None]
    return value


def node_at(root: Node, path: Path) -> Node:
    """The node at a path that exists."""
    node = root
    for step in path:
        children: Any = node.value
        node = children[step]
    return node


def schema_at(schema: Mapping[str, Any], path: NewPath) -> Mapping[str, Any] | None:
    """The chart's schema of one value; None when the chart has no such key."""
    node: Mapping[str, Any] = schema
    for step in path:
        found = resolved(schema, node)
        below = found.get("properties", {}).get(step)
        if below is None:
            # A type without listed properties is Kubernetes' own: the API server knows its keys.
            open_ended = found.get("additionalProperties", "properties" not in found)
            if open_ended is False:
                return None
            below = open_ended if isinstance(open_ended, dict) else {}
        node = below
    return resolved(schema, node)


def refusal(schema: Mapping[str, Any], path: NewPath, value: Plain) -> str:
    """Why the chart does not take `value` at `path`; empty when it does."""
    from jsonschema_rs import Draft7Validator

    below = schema_at(schema, path)
    if below is None:
        return f"the chart has no {dotted(path)}"
    validator = Draft7Validator({**below, "definitions": schema.get("definitions", {})})
    error = next(iter(validator.iter_errors(value)), None)
    return "" if error is None else str(error.message)
