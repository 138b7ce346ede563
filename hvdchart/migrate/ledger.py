"""The ledger of a migration: the input, the values made from it, and what became of each value.

No value can be lost. Each value of the input ends as an `Entry`: `close` adds the values that no
rule has handled, refuses a file that is mostly unknown, and compares every value that is carried
over with the one in the result. `put` overwrites nothing. Pure.
"""

from __future__ import annotations

import copy
import difflib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hvdchart.errors import SpecError
from hvdchart.spec.paths import KeyPath, dotted, nearest_node, value_at
from hvdchart.spec.yaml_tree import Node, Plain, shorten
from hvdchart.text import join_names
from hvdchart.values.merge import without_nulls
from hvdchart.values.schema import schema_at

Outcome: TypeAlias = Literal["carried over", "renamed", "changed", "dropped"]
NewPath: TypeAlias = tuple[str, ...]
_SAME = object()


@dataclass(frozen=True)
class Entry:
    """What became of a value, of all in a map or list, or of a part of a text: dotted paths."""

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
        # What `close` compares: a path of the input, where it went, and whether unchanged.
        self._moves: list[tuple[KeyPath, KeyPath, bool]] = []
        # The keys that rules asked for, by the path of their map: a key like one of them, which
        # the input lacks, is misspelt.
        self._known: dict[KeyPath, set[str]] = {}

    def value_at(self, *path: str | int) -> Plain:
        """The value at `path`; None when it is missing or null."""
        for length, step in enumerate(path):
            if isinstance(step, str):
                self._known.setdefault(path[:length], set()).add(step)
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
        """The text at `path`, a number as it was written; empty when missing. Raises SpecError."""
        value = self.value_at(*path)
        if value is None:
            return ""
        if isinstance(value, dict | list):
            raise self.type_error(path, "text")
        return value if isinstance(value, str) else nearest_node(self.root, path).text

    def integer_at(self, *path: str | int) -> int | None:
        """The integer at `path`, quoted or not, as for Helm; None if missing. Raises SpecError."""
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
        return self.error(path, f"got {shown(self.value_at(*path))}", expected)

    def _typed(self, path: KeyPath, kind: type, expected: str) -> Any:
        value = self.value_at(*path)
        if value is None or isinstance(value, kind):
            return value
        raise self.type_error(path, expected)

    def has(self, path: KeyPath) -> bool:
        """Whether the input has a value at `path`, null included; an index of a list must exist."""
        parent = self.value_at(*path[:-1])
        if path and isinstance(path[-1], str):
            self._known.setdefault(path[:-1], set()).add(path[-1])
        if isinstance(parent, list):
            return isinstance(path[-1], int)
        return isinstance(parent, dict) and path[-1] in parent

    def error(self, old: KeyPath, problem: str, expected: str) -> SpecError:
        """The error for a value of the input, with its place."""
        return SpecError(str(nearest_node(self.root, old).place), dotted(old), problem, expected)

    def carry_over(
        self, old: KeyPath, new: NewPath, reason: str = "", value: Plain = _SAME
    ) -> None:
        """Put the value at `old` (or `value`, made from it) at `new` in the chart's values."""
        current = self.value_at(*old)
        if current == "":
            self.drop(old, "an empty value sets nothing")
            return
        if current is None or not self.chart_has(new):
            self.drop(old, f"the chart has no {dotted(new)}" + (f": {reason}" if reason else ""))
            return
        outcome: Outcome = "carried over" if tuple(old) == new else "renamed"
        if value is _SAME:
            value = without_nulls(current)
        elif value != current:
            outcome = "changed"
        self.put(new, value, old)
        self._record(outcome, old, new, reason)

    def put(self, new: NewPath, value: Plain, old: KeyPath) -> None:
        """Set a value of the chart; raises SpecError if it is refused, or set to another value."""
        from jsonschema_rs import Draft7Validator

        key, below = f"the chart's {dotted(new)}", schema_at(self._schema, new)
        whole = {**(below or {}), "definitions": self._schema.get("definitions", {})}
        wrong = next(iter(Draft7Validator(whole).iter_errors(value)), None)
        if below is None or wrong is not None:
            problem = wrong.message if below and wrong else f"the chart has no {dotted(new)}"
            problem = f"{key} does not accept it: {shorten(problem, 160)}"
            raise self.error(old, problem, f"a value that {dotted(new)} accepts")
        current = value_at(self.values, new)
        if current is not None and current != value:
            problem = f"{key} is {shown(current)} from another value of the file, {shown(value)}"
            raise self.error(old, f"{problem} from this one", "values that agree, or one of them")
        self.replace(new, value)

    def replace(self, new: NewPath, value: Plain) -> None:
        """Set a value of the chart whatever it is; the caller says so in an entry or a check."""
        parent = self.values
        for step in new[:-1]:
            parent = parent.setdefault(step, {})
        parent[new[-1]] = copy.deepcopy(value)

    def change(self, old: KeyPath, new: NewPath, reason: str = "") -> None:
        """Record that the value at `old` became part of `new`, which the caller puts together."""
        self._record("changed", old, new, reason)

    def drop(self, old: KeyPath, reason: str) -> None:
        """Record why the value at `old`, if any, is dropped; of an empty one, that it is empty."""
        if self.has(old):
            value = self.value_at(*old)
            if value is None or value in ({}, []):
                reason = "null sets nothing" if value is None else "an empty value sets nothing"
            self._record("dropped", old, (), reason)

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

    def close_manifest(self) -> None:
        """As `close`, for a manifest: a key that has no entry yet is one of Kubernetes."""
        rest = [leaf for leaf in leaves(self.tree, ()) if leaf not in self._handled]
        for leaf in rest:
            self._refuse_misspelt(leaf)
            self.drop(leaf, "not carried over: see podSpec and container of worker and master")
        if rest:
            names = join_names((dotted(leaf) for leaf in rest), 12)
            self.add_check(
                "these fields are not carried over; podSpec and container of worker and master "
                f"take fields of pods and containers: {names}"
            )
        self._compare()

    def close(self, source: str, same_key: Callable[[NewPath], NewPath] | None = None) -> None:
        """Drop every value that has no entry yet, name them in a check, and compare the results.

        `source` is what the input is called, `same_key` this chart's key for one of its paths.
        Raises SpecError for a misspelt key and for a file that is mostly unknown.
        """
        unknown: list[str] = []
        ours: list[str] = []
        every = list(leaves(self.tree, ()))
        for leaf in every:
            if leaf in self._handled:
                continue
            # Not by self.value_at, which would remember the key as known to a rule.
            if value_at(self.tree, leaf) in (None, {}, []):
                self.drop(leaf, "")
                continue
            keys = tuple(itertools.takewhile(lambda step: isinstance(step, str), leaf))
            names = tuple(str(step) for step in keys)
            new = same_key(names) if same_key else names
            if self.chart_reads(new):
                reason = f"{source} ignored it; to use it now, set {dotted(new)} in the new values"
                ours.append(dotted(keys))
            else:
                self._refuse_misspelt(keys)
                reason = f"neither {source} nor this one has such a key"
                unknown.append(dotted(keys))
            self.drop(leaf, reason)
        if len(unknown) * 2 > len(every):
            problem = f"{len(unknown)} of {len(every)} values are unknown: {join_names(unknown)}"
            raise SpecError(str(self.root.place), "", problem, f"a file of {source}")
        for listed, text in (
            (ours, f"{source} ignored these keys, which this one has; set them again to use them"),
            (unknown, "no chart has these keys, so they are dropped"),
        ):
            if listed:
                self.add_check(f"{text}: {join_names(dict.fromkeys(listed), 12)}")
        self._compare()

    def _refuse_misspelt(self, keys: KeyPath) -> None:
        """Raise SpecError for a key that is like one which a rule asked for and the file lacks."""
        for length, key in enumerate(keys):
            known = self._known.get(keys[:length], set())
            present = value_at(self.tree, keys[:length])
            if key in known or not isinstance(present, dict):
                continue
            close = difflib.get_close_matches(str(key), sorted(known - set(present)), 1, 0.8)
            if close:
                expected = f"{close[0]}, if that is meant"
                raise self.error(keys[: length + 1], "no such key", expected)

    def _compare(self) -> None:
        """Raise SpecError when a value that an entry calls carried over is not in the result."""
        for old, new, is_same in self._moves:
            result, given = value_at(self.values, new), without_nulls(self.value_at(*old))
            if (result is None and given is not None) or (is_same and result != given):
                problem = f"migrate would lose it on the way to {dotted(new)}: a defect of migrate"
                raise self.error(old, problem, "a report of this defect, with the file")

    def _record(self, outcome: Outcome, old: KeyPath, new: NewPath, reason: str) -> None:
        """One entry for a value of which nothing has one yet, else one for each rest of it."""
        if not old:
            raise ValueError("an entry for the whole input would hide what no rule handles")
        every = list(leaves(self.value_at(*old), old))
        fresh = [leaf for leaf in every if leaf not in self._handled]
        self._handled.update(fresh)
        # A changed value has no place of its own within the new one.
        is_same = outcome in ("renamed", "carried over")
        self._moves += [
            (leaf, (*new, *(leaf[len(old) :] if is_same else ())), is_same)
            for leaf in fresh
            if new and " " not in new[0]
        ]
        for path in [old] if fresh == every else fresh:
            to = dotted((*new, *path[len(old) :])) if is_same else dotted(new)
            self.entries.append(Entry(outcome, dotted(path), to, reason))


def shown(value: Plain) -> str:
    """The value as an error message quotes it."""
    return shorten(json.dumps(value, ensure_ascii=False))


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
