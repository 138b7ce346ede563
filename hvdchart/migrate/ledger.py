"""The ledger of a migration: the input, the values made from it, and what became of each value.

Every value of the input ends as an `Entry`; `drop_rest` adds those that no rule has handled.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hvdchart.errors import SpecError
from hvdchart.spec.paths import KeyPath, dotted, nearest_node, place_of, value_at
from hvdchart.spec.yaml_tree import Node, Plain, shorten
from hvdchart.values.schema import schema_at

Outcome: TypeAlias = Literal["carried over", "renamed", "changed", "dropped"]
OUTCOMES: tuple[Outcome, ...] = ("carried over", "renamed", "changed", "dropped")
NewPath: TypeAlias = tuple[str, ...]
_SAME = object()


@dataclass(frozen=True)
class Entry:
    """What became of one value: `old` and `new` are dotted paths, `new` is empty when dropped."""

    outcome: Outcome
    old: str
    new: str = ""
    reason: str = ""


class Ledger:
    """The input, with an entry for each value handled so far and the chart's values made from them.

    `schema` is the chart's. A value that it rejects raises SpecError with the value's place in the
    input; a value that it has no key for is dropped, with that reason.
    """

    def __init__(self, root: Node, schema: Mapping[str, Any]) -> None:
        self.root = root
        self.tree: Plain = root.plain
        self.values: dict[str, Plain] = {}
        self.entries: list[Entry] = []
        self.checks: list[str] = []
        self._schema = schema
        self._handled: set[KeyPath] = set()

    def value_at(self, *path: str | int) -> Plain:
        """The value at `path`; None when it is missing or null."""
        return value_at(self.tree, path)

    def map_at(self, *path: str | int) -> dict[str, Plain]:
        """The map at `path`, empty when missing; raises SpecError for anything else."""
        return self._typed(path, dict, "a map") or {}

    def list_at(self, *path: str | int) -> list[Plain]:
        """The list at `path`, empty when missing; raises SpecError for anything else."""
        return self._typed(path, list, "a list") or []

    def items_at(self, *path: str | int) -> list[KeyPath]:
        """The paths of the items of the list at `path`; raises SpecError as `list_at` does."""
        return [(*path, index) for index in range(len(self.list_at(*path)))]

    def text_at(self, *path: str | int) -> str:
        """The text at `path`, a number as it was written; empty when missing.

        Raises SpecError for a map or a list.
        """
        value = self.value_at(*path)
        if value is None:
            return ""
        if isinstance(value, dict | list):
            raise self.type_error(path, "text")
        return value if isinstance(value, str) else nearest_node(self.root, path).text

    def integer_at(self, *path: str | int) -> int | None:
        """The integer at `path`, quoted or not, as Helm and kubectl accept both; None if missing.

        Raises SpecError for anything else.
        """
        value = self.value_at(*path)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self.type_error(path, "a whole number")

    def is_true(self, *path: str | int) -> bool:
        """Whether `path` is true in YAML 1.1, which Helm and kubectl read; raises SpecError."""
        value = self.value_at(*path)
        if isinstance(value, str) and value.lower() in ("yes", "on", "true", "y"):
            return True
        if value is None or isinstance(value, bool):
            return bool(value)
        if isinstance(value, str) and value.lower() in ("no", "off", "false", "n"):
            return False
        raise self.type_error(path, "true or false")

    def type_error(self, path: KeyPath, expected: str) -> SpecError:
        """The error for a value of the input that is not what its key takes."""
        actual = shorten(json.dumps(self.value_at(*path), ensure_ascii=False))
        return SpecError(str(place_of(self.root, path)), dotted(path), f"got {actual}", expected)

    def _typed(self, path: KeyPath, kind: type, expected: str) -> Any:
        value = self.value_at(*path)
        if value is None or isinstance(value, kind):
            return value
        raise self.type_error(path, expected)

    def carry_over(
        self, old: KeyPath, new: NewPath, reason: str = "", value: Plain = _SAME
    ) -> None:
        """Put the value at `old` (or `value`, made from it) at `new` in the chart's values."""
        current = self.value_at(*old)
        if current is None or not self.chart_has(new):
            self.drop(old, f"the chart has no {dotted(new)}" + (f": {reason}" if reason else ""))
            return
        outcome: Outcome = "carried over" if tuple(old) == new else "renamed"
        if value is _SAME:
            value = without_nulls(current)
            for leaf in leaves(current, old):
                if self.value_at(*leaf) is None:
                    self.drop(leaf, "")
        elif value != current:
            outcome = "changed"
        self.put(new, value, old)
        for leaf in leaves(current, old):
            below = leaf[len(old) :] if outcome != "changed" else ()
            self._record(Entry(outcome, dotted(leaf), dotted((*new, *below)), reason), leaf)

    def put(self, new: NewPath, value: Plain, old: KeyPath) -> None:
        """Set a value of the chart; raises SpecError at `old` when the schema rejects it."""
        problem = schema_error(self._schema, new, value)
        if problem:
            raise SpecError(
                str(place_of(self.root, old)), dotted(old),
                f"the chart's {dotted(new)} does not accept it: {shorten(problem, 160)}",
                f"a value that {dotted(new)} accepts",
            )  # fmt: skip
        parent = self.values
        for step in new[:-1]:
            parent = parent.setdefault(step, {})
        parent[new[-1]] = copy.deepcopy(value)

    def change(self, old: KeyPath, new: NewPath, reason: str = "") -> None:
        """Record that the value at `old` became part of `new`, which the caller puts together."""
        for leaf in leaves(self.value_at(*old), old):
            self._record(Entry("changed", dotted(leaf), dotted(new), reason), leaf)

    def drop(self, old: KeyPath, reason: str) -> None:
        """Record why the value at `old` is dropped; nothing when the input has none.

        A null and an empty map or list have that as their reason.
        """
        if not self.has(old):
            return
        for leaf in leaves(self.value_at(*old), old):
            value = self.value_at(*leaf)
            empty = "null sets nothing" if value is None else "an empty value sets nothing"
            no_value = value is None or value in ({}, [])
            self._record(Entry("dropped", dotted(leaf), "", empty if no_value else reason), leaf)

    def add_part(self, old: KeyPath, part: str, new: str, reason: str = "") -> None:
        """Add an entry about a part of a value, such as one option of a command line."""
        outcome: Outcome = "changed" if new else "dropped"
        self.entries.append(Entry(outcome, f"{dotted(old)}: {part}", new, reason))

    def add_check(self, text: str) -> None:
        """Add something that a person has to check by hand."""
        if text not in self.checks:
            self.checks.append(text)

    def chart_has(self, new: NewPath) -> bool:
        """Whether the chart has a key at `new`."""
        return schema_at(self._schema, new) is not None

    def chart_reads(self, path: KeyPath) -> bool:
        """Whether the chart has a key at `path` that it does not reject as an old chart's key."""
        keys = tuple(str(step) for step in path)
        for length, key in enumerate(keys):
            parent = schema_at(self._schema, keys[:length])
            if parent is None or "properties" not in parent:
                return parent is not None
            # The schema lists the old charts' keys without a type: a template rejects them.
            if not parent["properties"].get(key):
                return False
        return True

    def has(self, path: KeyPath) -> bool:
        """Whether the input has a value at `path`, null included; an index of a list must exist."""
        parent = self.value_at(*path[:-1])
        if isinstance(parent, list):
            return isinstance(path[-1], int)
        return isinstance(parent, dict) and path[-1] in parent

    def drop_rest(self, reason_for: Callable[[KeyPath], str]) -> None:
        """Drop every value that has no entry yet, with the reason for its path."""
        for leaf in leaves(self.tree, ()):
            self.drop(leaf, reason_for(leaf))

    def _record(self, entry: Entry, leaf: KeyPath) -> None:
        if leaf not in self._handled:
            self._handled.add(leaf)
            self.entries.append(entry)


def leaves(value: Plain, path: KeyPath) -> Iterator[KeyPath]:
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


def schema_error(schema: Mapping[str, Any], path: NewPath, value: Plain) -> str:
    """Why the chart rejects `value` at `path`; empty when it accepts it."""
    from jsonschema_rs import Draft7Validator

    below = schema_at(schema, path)
    if below is None:
        return f"the chart has no {dotted(path)}"
    validator = Draft7Validator({**below, "definitions": schema.get("definitions", {})})
    error = next(iter(validator.iter_errors(value)), None)
    return "" if error is None else str(error.message)
