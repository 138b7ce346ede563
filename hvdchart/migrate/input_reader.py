"""Reads values of the input by their path, with their types; remembers which keys a rule asked for.

Pure.
"""

from __future__ import annotations

from typing import Any

from hvdchart.errors import SpecError
from hvdchart.migrate.trees import shown
from hvdchart.spec.paths import KeyPath, dotted, nearest_node, place_of, value_at
from hvdchart.spec.yaml_tree import Node, Plain


class InputReader:
    """The input: a tree of values with their places."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.tree: Plain = root.plain
        # Keys that a rule asked for, by the path of their map: they are those that it knows.
        self.known: dict[KeyPath, set[str]] = {}

    def value_at(self, *path: str | int) -> Plain:
        """The value at `path`; None when it is missing or null."""
        for length, step in enumerate(path):
            if isinstance(step, str):
                self.known.setdefault(path[:length], set()).add(step)
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
            self.known.setdefault(path[:-1], set()).add(path[-1])
        if isinstance(parent, list):
            return isinstance(path[-1], int)
        return isinstance(parent, dict) and path[-1] in parent

    def error(self, old: KeyPath, problem: str, expected: str) -> SpecError:
        """The error for a value of the input, with its place."""
        return SpecError(str(place_of(self.root, old)), dotted(old), problem, expected)
