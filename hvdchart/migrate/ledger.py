"""The ledger of a migration: the input, the values made from it, and what became of each value.

No value can be lost. Each value of the input ends as an `Entry`: `close` adds those that no rule
has handled, refuses a file that is mostly unknown, and compares every value that an entry calls
carried over with the one in the result. `put` overwrites nothing.
"""

from __future__ import annotations

import copy
import difflib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hvdchart.errors import SpecError
from hvdchart.migrate.input_reader import InputReader
from hvdchart.migrate.kubernetes import did_you_mean, value_problem
from hvdchart.migrate.trees import (
    leaves,
    nulls_in_lists,
    schema_error,
    shown,
    value_at_text,
    without_nulls,
)
from hvdchart.spec.paths import KeyPath, dotted, place_of, value_at
from hvdchart.spec.yaml_tree import Node, Plain, shorten
from hvdchart.text import join_names
from hvdchart.values.schema import schema_at

Outcome: TypeAlias = Literal["carried over", "renamed", "changed", "dropped"]
NewPath: TypeAlias = tuple[str, ...]
_SAME = object()


@dataclass(frozen=True)
class Entry:
    """What became of one value: `old` and `new` are dotted paths, `new` is empty when dropped.

    `path` is the path of the value in the input, empty for a part of a value.
    """

    outcome: Outcome
    old: str
    new: str = ""
    reason: str = ""
    path: KeyPath = ()


class Ledger(InputReader):
    """The input, with an entry for each value handled so far and the chart's values made from them.

    `schema` is the chart's. A value that it rejects raises SpecError with the value's place in the
    input; a value that it has no key for is dropped, with that reason.
    """

    def __init__(self, root: Node, schema: Mapping[str, Any]) -> None:
        super().__init__(root)
        self.values: dict[str, Plain] = {}
        self.entries: list[Entry] = []
        self.checks: list[str] = []
        self._schema = schema
        self._handled: dict[KeyPath, tuple[Outcome, NewPath]] = {}

    def carry_over(
        self, old: KeyPath, new: NewPath, reason: str = "", value: Plain = _SAME
    ) -> None:
        """Put the value at `old` (or `value`, made from it) at `new` in the chart's values."""
        _refuse_root(old)
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
            for leaf in leaves(current, old):
                if self.value_at(*leaf) is None:
                    self.drop(leaf, "")
        elif value != current:
            outcome = "changed"
        self.put(new, value, old)
        for leaf in leaves(current, old):
            below = leaf[len(old) :] if outcome != "changed" else ()
            self._record(outcome, leaf, (*new, *(str(step) for step in below)), reason,
                         dotted((*new, *below)))  # fmt: skip

    def put(self, new: NewPath, value: Plain, old: KeyPath) -> None:
        """Set a value of the chart.

        Raises SpecError at `old` when the chart or Kubernetes rejects it, or when the chart's value
        is set already and differs.
        """
        key = f"the chart's {dotted(new)}"
        if list(nulls_in_lists(value)):
            raise self.error(old, "an item of a list is null", "items that are not null")
        wrong = value_problem(new, value)
        if wrong is not None:
            place = (*old, *wrong.path) if self.has((*old, *wrong.path)) else old
            raise self.error(place, f"{dotted((*new, *wrong.path))}: {wrong.problem}",
                             wrong.expected)  # fmt: skip
        problem = schema_error(self._schema, new, value)
        if problem:
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
        _refuse_root(old)
        for leaf in leaves(self.value_at(*old), old):
            self._record("changed", leaf, new, reason, dotted(new))

    def drop(self, old: KeyPath, reason: str) -> None:
        """Record why the value at `old` is dropped; nothing when the input has none.

        A null and an empty map or list have that as their reason.
        """
        _refuse_root(old)
        if not self.has(old):
            return
        for leaf in leaves(self.value_at(*old), old):
            value = self.value_at(*leaf)
            empty = "null sets nothing" if value is None else "an empty value sets nothing"
            no_value = value is None or value in ({}, [])
            self._record("dropped", leaf, (), empty if no_value else reason, "")

    def add_part(self, old: KeyPath, part: str, new: str, reason: str = "") -> None:
        """Add an entry about a part of a value, such as one option of a command line."""
        outcome: Outcome = "changed" if new else "dropped"
        self.entries.append(Entry(outcome, f"{dotted(old)}: {part}", new, reason))

    def add_check(self, text: str) -> None:
        """Add something that a person has to check by hand."""
        if text not in self.checks:
            self.checks.append(text)

    def is_handled(self, old: KeyPath) -> bool:
        """Whether the value at `old`, which is no map and no list, has an entry."""
        return old in self._handled

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
        """As `close`, for a manifest: every key that has no entry yet is a valid one."""
        rest = [leaf for leaf in leaves(self.tree, ()) if leaf not in self._handled]
        for leaf in rest:
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
            # Not by value_at, which remembers the key as one that a rule knows.
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
            raise SpecError(str(place_of(self.root, ())), "", problem, f"a file of {source}")
        for listed, text in (
            (ours, f"{source} ignored these keys, which this one has; set them again to use them"),
            (unknown, "no chart has these keys, so they are dropped"),
        ):
            if listed:
                self.add_check(f"{text}: {join_names(dict.fromkeys(listed), 12)}")
        self._compare()

    def _refuse_misspelt(self, keys: KeyPath) -> None:
        """Raise SpecError for a key that is nearly one that a rule knows and the file lacks."""
        for length, key in enumerate(keys):
            known = self.known.get(keys[:length], set())
            present = value_at(self.tree, keys[:length]) or {}
            if key in known or not isinstance(present, dict):
                continue
            close = difflib.get_close_matches(str(key), sorted(known - set(present)), 1, 0.8)
            if close:
                problem = "no such key"
                raise self.error(keys[: length + 1], problem, did_you_mean(str(key), close))

    def _compare(self) -> None:
        """Raise SpecError when a value that an entry calls carried over is not in the result."""
        for leaf, (outcome, new) in self._handled.items():
            if outcome == "dropped" or " " in new[0]:
                continue
            result = value_at_text(self.values, new)
            same = outcome == "changed" or result == without_nulls(self.value_at(*leaf))
            if result is None or not same:
                problem = f"migrate would lose it on the way to {dotted(new)}: a defect of migrate"
                raise self.error(leaf, problem, "a report of this defect, with the file")

    def _record(
        self, outcome: Outcome, leaf: KeyPath, new: NewPath, reason: str, shown: str
    ) -> None:
        if leaf not in self._handled:
            self._handled[leaf] = (outcome, new)
            self.entries.append(Entry(outcome, dotted(leaf), shown, reason, leaf))


def _refuse_root(old: KeyPath) -> None:
    """One entry for the whole input would hide that its values are not handled."""
    if not old:
        raise ValueError("an entry for the whole input")
