"""Readers of a spec's values; each also describes its values as a JSON schema.

A reader turns a `Node` into a checked Python value, or raises SpecError with the place of the node.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

from hvdchart.errors import ErrorCollector, SpecError
from hvdchart.quantity import cpu_millis, memory_bytes
from hvdchart.spec.yaml_tree import CONTROL, Node, Plain

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Reader(Protocol[T_co]):
    """Reads one kind of value."""

    def read(self, node: Node, path: str) -> T_co:
        """The checked value of `node`; raises SpecError."""

    def schema(self) -> dict[str, Plain]:
        """The JSON schema of the values that `read` accepts."""


def wrong_value(node: Node, path: str, expected: str) -> SpecError:
    """The error for a value that is not what its key takes."""
    return SpecError(str(node.place), path, f"got {node.shown}", expected)


@dataclass(frozen=True)
class Integer:
    """A whole number from `low` to `high`."""

    low: int
    high: int

    def read(self, node: Node, path: str) -> int:
        value = node.value
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or not self.low <= value <= self.high
        ):
            raise wrong_value(node, path, f"a whole number from {self.low} to {self.high}")
        return value

    def schema(self) -> dict[str, Plain]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Number:
    """A number from `low` to `high`."""

    low: float
    high: float

    def read(self, node: Node, path: str) -> float:
        value = node.value
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not self.low <= value <= self.high
        ):
            raise wrong_value(node, path, f"a number from {self.low:g} to {self.high:g}")
        return float(value)

    def schema(self) -> dict[str, Plain]:
        return {"type": "number", "minimum": self.low, "maximum": self.high}


class Boolean:
    """true or false."""

    def read(self, node: Node, path: str) -> bool:
        if not isinstance(node.value, bool):
            raise wrong_value(node, path, "true or false")
        return node.value

    def schema(self) -> dict[str, Plain]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class String:
    """Text that matches a pattern completely; `expected` describes the pattern in messages."""

    expected: str = "text"
    pattern: str = r"(?s).*"
    longest: int = 4096
    shortest: int = 1

    def read(self, node: Node, path: str) -> str:
        value = node.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise wrong_value(node, path, f'{self.expected}; write it in quotes: "{node.text}"')
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise wrong_value(node, path, self.expected)
        if CONTROL.search(value):
            # Not in YAML, where the parser refuses it, but in a spec that was built in Python.
            raise wrong_value(node, path, f"{self.expected} without control characters")
        if not self.shortest <= len(value) <= self.longest:
            raise wrong_value(
                node, path, f"{self.expected}, {self.shortest} to {self.longest} characters long"
            )
        return value

    def schema(self) -> dict[str, Plain]:
        limits: dict[str, Plain] = {"minLength": self.shortest, "maxLength": self.longest}
        if self.pattern != String.pattern:
            limits["pattern"] = f"^(?:{self.pattern})$"
        return {"type": "string", **limits}


@dataclass(frozen=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]

    def read(self, node: Node, path: str) -> str:
        value = node.value
        if not isinstance(value, str) or value not in self.words:
            near = nearest(str(value), self.words)
            raise wrong_value(node, path, f"one of {', '.join(self.words)}{near}")
        return value

    def schema(self) -> dict[str, Plain]:
        return {"type": "string", "enum": list(self.words)}


@dataclass(frozen=True)
class _Quantity:
    """A Kubernetes quantity as a whole number of its smallest unit."""

    parse: Callable[[str], int]
    expected: str
    low: int
    high: int
    # The suffix of the smallest unit.
    suffix: str = ""

    def write(self, value: object) -> Plain:
        """What `read` reads as `value`; `read` refuses it where `value` is of another type."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return f"{value}{self.suffix}" if is_number else value

    def read(self, node: Node, path: str) -> int:
        try:
            number = self.parse(node.text)
        except ValueError:
            raise wrong_value(node, path, self.expected) from None
        if not self.low <= number <= self.high:
            raise wrong_value(node, path, self.expected)
        return number

    def schema(self) -> dict[str, Plain]:
        return {"type": ["string", "number"], "description": self.expected}


def Cpus(low_millis: int = 1) -> Reader[int]:  # noqa: N802 - named like the other readers
    """CPUs in thousandths, counting hyperthreads."""
    expected = f"a number of CPUs from {low_millis / 1000:g} to 16384, such as 4 or 500m"
    return _Quantity(cpu_millis, expected, low_millis, 16384 * 1000, "m")


def Memory(low: str = "16Mi", high: str = "64Ti") -> Reader[int]:  # noqa: N802
    """Memory in bytes."""
    expected = f"an amount of memory from {low} to {high}, such as 16Gi"
    return _Quantity(memory_bytes, expected, memory_bytes(low), memory_bytes(high))


@dataclass(frozen=True)
class ListOf(Generic[T]):
    """A list whose items are all read by `item`."""

    item: Reader[T]
    shortest: int = 0
    longest: int = 1000

    def read(self, node: Node, path: str) -> tuple[T, ...]:
        if not isinstance(node.value, list):
            raise wrong_value(node, path, "a list")
        if not self.shortest <= len(node.value) <= self.longest:
            raise wrong_value(node, path, f"a list of {self.shortest} to {self.longest} items")
        items, errors = [], ErrorCollector()
        for index, child in enumerate(node.value):
            with errors.step():
                items.append(self.item.read(child, f"{path}[{index}]"))
        errors.raise_all()
        return tuple(items)

    def schema(self) -> dict[str, Plain]:
        limits = {"minItems": self.shortest, "maxItems": self.longest}
        return {"type": "array", "items": self.item.schema(), **limits}


@dataclass(frozen=True)
class MapOf(Generic[T]):
    """A map from names that the user chooses to values that are all read by `item`."""

    name: String
    item: Reader[T]
    longest: int = 200

    def read(self, node: Node, path: str) -> Mapping[str, T]:
        if not isinstance(node.value, dict):
            raise wrong_value(node, path, "a map")
        if len(node.value) > self.longest:
            raise wrong_value(node, path, f"a map with at most {self.longest} keys")
        result, errors = {}, ErrorCollector()
        for key, child in node.value.items():
            with errors.step():
                self.name.read(Node(child.key_place or child.place, key), f"a key of {path}")
            with errors.step():
                result[key] = self.item.read(child, f"{path}.{key}")
        errors.raise_all()
        return result

    def schema(self) -> dict[str, Plain]:
        return {
            "type": "object",
            "propertyNames": self.name.schema(),
            "additionalProperties": self.item.schema(),
            "maxProperties": self.longest,
        }


class AnyObject:
    """A map of any content: the API server checks it, not hvdchart."""

    def read(self, node: Node, path: str) -> Mapping[str, Plain]:
        if not isinstance(node.value, dict):
            raise wrong_value(node, path, "a map")
        return cast(Mapping[str, Plain], node.plain)

    def schema(self) -> dict[str, Plain]:
        return {"type": "object"}


def nearest(word: str, words: Iterable[str]) -> str:
    """A hint that names the known word most like `word`; empty when none is alike."""
    near = difflib.get_close_matches(word, list(words))
    return f" (did you mean {near[0]!r}?)" if near else ""
