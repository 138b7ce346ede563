"""The ledger of a migration: the input, its new values, and the outcome for each value.

No value is lost. Each value of the input ends as an `Entry`: `close` adds the values that no rule
has handled, and refuses a file that is mostly unknown. `put` overwrites nothing. Pure.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hvdchart.errors import SpecError
from hvdchart.spec.paths import KeyPath, format_path, nearest_node, value_at
from hvdchart.spec.values_schema import schema_at
from hvdchart.spec.yaml_tree import Node, Plain, shorten
from hvdchart.text import join_names
from hvdchart.values.merge import drop_nulls

Outcome: TypeAlias = Literal["carried over", "renamed", "changed", "dropped"]
NewPath: TypeAlias = tuple[str, ...]
# The booleans of YAML 1.1, which Helm and kubectl read.
_TRUE = ("yes", "on", "true", "y")
_FALSE = ("no", "off", "false", "n")


@dataclass(frozen=True)
class Entry:
    """The outcome for a value, for a map or list, or for a part of a text: dotted paths."""

    outcome: Outcome
    old: str
    new: str = ""
    reason: str = ""


class Ledger:
    """The input, with an entry for each value handled so far and the new values of the chart.

    `schema` is the chart's. A value that it rejects raises SpecError with the value's place in the
    input. A value without a key in the schema is dropped, with that reason.
    """

    def __init__(self, root: Node, schema: Mapping[str, Any]) -> None:
        self.root = root
        self.tree: Plain = root.plain
        self.values: dict[str, Plain] = {}
        self.entries: list[Entry] = []
        # What to check by hand.
        self.checks: list[str] = []
        # The kind of the input, and the names in it; a name that is no valid release name is empty.
        self.source = "command line"
        self.release = self.namespace = ""
        self._schema = schema
        self._handled: set[KeyPath] = set()

    def value_at(self, *path: str | int) -> Plain:
        """Return the value at `path`; None if it is missing or null."""
        return value_at(self.tree, path)

    def map_at(self, *path: str | int) -> dict[str, Plain]:
        """Return the map at `path`, empty if missing; raise SpecError for anything else."""
        return self._value_of_type(path, dict, "a map") or {}

    def list_at(self, *path: str | int) -> list[Plain]:
        """Return the list at `path`, empty if missing; raise SpecError for anything else."""
        return self._value_of_type(path, list, "a list") or []

    def items_at(self, *path: str | int) -> list[KeyPath]:
        """Return the paths of the items of a list; raise SpecError as `list_at` does."""
        return [(*path, index) for index in range(len(self.list_at(*path)))]

    def text_at(self, *path: str | int) -> str:
        """Return the text or the number as written, empty if missing. Raises SpecError."""
        value = self.value_at(*path)
        if value is None:
            return ""
        if isinstance(value, dict | list):
            raise self.type_error(path, "text")
        return value if isinstance(value, str) else nearest_node(self.root, path).text

    def integer_at(self, *path: str | int) -> int | None:
        """Return the integer, quoted or not as for Helm, None if missing. Raises SpecError."""
        value = self.value_at(*path)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self.type_error(path, "a whole number")

    def is_true(self, *path: str | int) -> bool:
        """Return whether `path` is true, as Helm and kubectl read it. Raises SpecError."""
        value = self.value_at(*path)
        word = str(value).lower()
        if value is None or (isinstance(value, bool | str) and word in (*_TRUE, *_FALSE)):
            return word in _TRUE
        raise self.type_error(path, "true or false")

    def type_error(self, path: KeyPath, expected: str) -> SpecError:
        """Return the error for an input value of a wrong type for its key."""
        return self.error(path, f"got {shown(self.value_at(*path))}", expected)

    def _value_of_type(self, path: KeyPath, kind: type, expected: str) -> Any:
        value = self.value_at(*path)
        if value is None or isinstance(value, kind):
            return value
        raise self.type_error(path, expected)

    def has(self, path: KeyPath) -> bool:
        """Return whether the input has a value at `path`, even null; an index must exist."""
        parent = self.value_at(*path[:-1])
        if isinstance(parent, list):
            return isinstance(path[-1], int)
        return isinstance(parent, dict) and path[-1] in parent

    def error(self, old: KeyPath, problem: str, expected: str) -> SpecError:
        """Return the error for a value of the input, with its place."""
        return SpecError(
            str(nearest_node(self.root, old).place), format_path(old), problem, expected
        )

    def carry_over(self, old: KeyPath, new: NewPath, reason: str = "", value: Plain = None) -> None:
        """Put the value at `old` (or `value`, made from it) at `new` in the chart's values."""
        current = self.value_at(*old)
        if current in (None, ""):
            self.drop(old, "")
            return
        outcome: Outcome = "carried over" if tuple(old) == new else "renamed"
        if value not in (None, current):
            outcome = "changed"
        self.put(new, drop_nulls(current if value is None else value), old)
        self._record(outcome, old, new, reason)

    def put(self, new: NewPath, value: Plain, old: KeyPath) -> None:
        """Set a value of the chart; raise SpecError if it is refused, or set to another value."""
        from jsonschema_rs import Draft7Validator

        key = f"the chart's {format_path(new)}"
        below = schema_at(self._schema, new)
        whole = {**(below or {}), "definitions": self._schema.get("definitions", {})}
        wrong = next(iter(Draft7Validator(whole).iter_errors(value)), None)
        if below is None or wrong is not None:
            problem = wrong.message if below and wrong else f"the chart has no {format_path(new)}"
            problem = f"{key} does not accept it: {shorten(problem, 160)}"
            raise self.error(old, problem, f"a value that {format_path(new)} accepts")
        current = value_at(self.values, new)
        if current is not None and current != value:
            problem = f"{key} is {shown(current)} from another value of the file, {shown(value)}"
            raise self.error(old, f"{problem} from this one", "values that agree, or one of them")
        parent = self.values
        for step in new[:-1]:
            parent = parent.setdefault(step, {})
        parent[new[-1]] = copy.deepcopy(value)

    def change(self, old: KeyPath, new: NewPath, reason: str = "") -> None:
        """Record that the value at `old`, if any, became a part of `new`, put by the caller."""
        if self.has(old):
            self._record("changed", old, new, reason)

    def drop(self, old: KeyPath, reason: str) -> None:
        """Record why the value at `old`, if any, is dropped: for an empty value, as empty."""
        if self.has(old):
            value = self.value_at(*old)
            if not value:
                reason = f"{'null' if value is None else shown(value)} sets nothing"
            self._record("dropped", old, (), reason)

    def is_set(self, path: KeyPath) -> bool:
        """Return whether the value at `path` is neither empty nor false."""
        value = self.value_at(*path)
        return bool(value) and str(value).lower() not in _FALSE

    def leave_out(self, old: KeyPath, part: str) -> None:
        """Record that the value at `old` is not in the result, and add a check with the remedy."""
        if self.is_set(old):
            self.add_check(f"{format_path(old)} is dropped: {part}")
        self.drop(old, part)

    def add_part(self, old: KeyPath, part: str, new: str, reason: str = "") -> None:
        """Add an entry about a part of a value, such as one option of a command line."""
        outcome: Outcome = "changed" if new else "dropped"
        self.entries.append(Entry(outcome, f"{format_path(old)}: {part}", new, reason))

    def add_check(self, text: str) -> None:
        """Add something that the user must check by hand."""
        if text not in self.checks:
            self.checks.append(text)

    def close(self, chart: str = "") -> None:
        """Drop every value that has no entry yet, and list them in a check.

        Raises SpecError if most values of a file are unknown to the detected `chart`.
        """
        every = list(leaves(self.tree, ()))
        rest = [leaf for leaf in every if not self._is_handled(leaf)]
        if chart and len(rest) * 2 > len(every):
            names = join_names(format_path(leaf) for leaf in rest)
            problem = f"{len(rest)} of {len(every)} values are unknown: {names}"
            raise SpecError(str(self.root.place), "", problem, f"a file of {chart}")
        for leaf in rest:
            self.drop(leaf, "not carried over")
        lost = [format_path(leaf) for leaf in rest if value_at(self.tree, leaf)]
        if lost:
            self.add_check(
                f"these keys are not carried over: {join_names(lost, 12)}. Set what this chart has "
                "for them; podSpec and container of worker and master take any field of pods"
            )

    def _record(self, outcome: Outcome, old: KeyPath, new: NewPath, reason: str) -> None:
        """Add an entry for a value, unless it or what it is in has one."""
        if not old:
            raise ValueError("an entry for the whole input would hide what no rule handles")
        if not self._is_handled(old):
            self._handled.add(old)
            self.entries.append(Entry(outcome, format_path(old), format_path(new), reason))

    def _is_handled(self, path: KeyPath) -> bool:
        return any(path[:length] in self._handled for length in range(1, len(path) + 1))


def shown(value: Plain) -> str:
    """Format the value for an error message."""
    return shorten(json.dumps(value, ensure_ascii=False))


def leaves(value: Plain, path: KeyPath) -> Iterator[KeyPath]:
    """Yield the paths of all scalars and of all empty maps and lists."""
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
