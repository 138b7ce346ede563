"""How a spec's values are read: small readers, each also writing its part of the JSON schema.

A reader turns a `Node` into a checked Python value or raises SpecError with the node's place.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

from hvdchart.errors import SpecError
from hvdchart.quantity import cpu_millis, memory_bytes
from hvdchart.spec.yaml_tree import Node, Plain

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Reader(Protocol[T_co]):
    """Reads one kind of value."""

    def read(self, node: Node, path: str) -> T_co:
        """The checked value of `node`; raises SpecError."""

    def schema(self) -> dict[str, Plain]:
        """The JSON schema of what `read` takes."""


def refuse(node: Node, path: str, expected: str) -> SpecError:
    """The error for a value of the wrong kind."""
    return SpecError(str(node.place), path, f"got {node.shown}", expected)


@dataclass(frozen=True)
class Whole:
    """A whole number within limits."""

    low: int
    high: int

    def read(self, node: Node, path: str) -> int:
        value = node.value
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or not self.low <= value <= self.high
        ):
            raise refuse(node, path, f"a whole number from {self.low} to {self.high}")
        return value

    def schema(self) -> dict[str, Plain]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Real:
    """A number within limits."""

    low: float
    high: float

    def read(self, node: Node, path: str) -> float:
        value = node.value
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise refuse(node, path, f"a number from {self.low:g} to {self.high:g}")
        if not self.low <= value <= self.high:
            raise refuse(node, path, f"a number from {self.low:g} to {self.high:g}")
        return float(value)

    def schema(self) -> dict[str, Plain]:
        return {"type": "number", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Flag:
    """true or false."""

    def read(self, node: Node, path: str) -> bool:
        if not isinstance(node.value, bool):
            raise refuse(node, path, "true or false")
        return node.value

    def schema(self) -> dict[str, Plain]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Text:
    """Text that matches a pattern as a whole; `expected` says the pattern in words."""

    expected: str = "text"
    pattern: str = r"(?s).*"
    longest: int = 4096
    shortest: int = 1

    def read(self, node: Node, path: str) -> str:
        value = node.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise refuse(node, path, f'{self.expected}; in quotes: "{node.text}"')
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise refuse(node, path, self.expected)
        if not self.shortest <= len(value) <= self.longest:
            raise refuse(
                node, path, f"{self.expected}, {self.shortest} to {self.longest} characters long"
            )
        return value

    def schema(self) -> dict[str, Plain]:
        limits: dict[str, Plain] = {"minLength": self.shortest, "maxLength": self.longest}
        if self.pattern != Text.pattern:
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
            raise refuse(node, path, f"one of {', '.join(self.words)}{near}")
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

    def read(self, node: Node, path: str) -> int:
        if isinstance(node.value, bool) or not isinstance(node.value, str | int | float):
            raise refuse(node, path, self.expected)
        try:
            number = self.parse(node.text)
        except ValueError:
            raise refuse(node, path, self.expected) from None
        if not self.low <= number <= self.high:
            raise refuse(node, path, self.expected)
        return number

    def schema(self) -> dict[str, Plain]:
        return {"type": ["string", "number"], "description": self.expected}


def Cpus(low_millis: int = 1) -> Reader[int]:  # noqa: N802 - reads as the other readers do
    """CPUs, hyperthreads counted, in thousandths."""
    expected = f"a number of CPUs from {low_millis / 1000:g} to 16384, such as 4 or 500m"
    return _Quantity(cpu_millis, expected, low_millis, 16384 * 1000)


def Memory(low: str = "16Mi", high: str = "64Ti") -> Reader[int]:  # noqa: N802
    """Memory in bytes."""
    expected = f"an amount of memory from {low} to {high}, such as 16Gi"
    return _Quantity(memory_bytes, expected, memory_bytes(low), memory_bytes(high))


@dataclass(frozen=True)
class ListOf(Generic[T]):
    """A list of like things."""

    item: Reader[T]
    shortest: int = 0
    longest: int = 1000

    def read(self, node: Node, path: str) -> tuple[T, ...]:
        if not isinstance(node.value, list):
            raise refuse(node, path, "a list")
        if not self.shortest <= len(node.value) <= self.longest:
            raise refuse(node, path, f"a list of {self.shortest} to {self.longest}")
        return tuple(self.item.read(child, f"{path}[{i}]") for i, child in enumerate(node.value))

    def schema(self) -> dict[str, Plain]:
        limits = {"minItems": self.shortest, "maxItems": self.longest}
        return {"type": "array", "items": self.item.schema(), **limits}


@dataclass(frozen=True)
class MapOf(Generic[T]):
    """A map from names of a person's choice to like things."""

    name: Text
    item: Reader[T]
    longest: int = 200

    def read(self, node: Node, path: str) -> Mapping[str, T]:
        if not isinstance(node.value, dict):
            raise refuse(node, path, "a map")
        if len(node.value) > self.longest:
            raise refuse(node, path, f"at most {self.longest} keys")
        result = {}
        for key, child in node.value.items():
            self.name.read(Node(child.key_place or child.place, key), f"a key of {path}")
            result[key] = self.item.read(child, f"{path}.{key}")
        return result

    def schema(self) -> dict[str, Plain]:
        return {
            "type": "object",
            "propertyNames": self.name.schema(),
            "additionalProperties": self.item.schema(),
            "maxProperties": self.longest,
        }


@dataclass(frozen=True)
class Free:
    """Kubernetes' own map, passed on as it is; the API server checks it."""

    def read(self, node: Node, path: str) -> Mapping[str, Plain]:
        if not isinstance(node.value, dict):
            raise refuse(node, path, "a map")
        return cast(Mapping[str, Plain], node.plain)

    def schema(self) -> dict[str, Plain]:
        return {"type": "object"}


def nearest(word: str, words: Iterable[str]) -> str:
    """A hint at the known word that a misspelt one is nearest to; empty when none is near."""
    near = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""
