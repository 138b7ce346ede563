"""Declare the keys of a spec: each reader checks a value, and describes it as a JSON schema.

A reader turns a `Node` into a checked Python value, or raises SpecError with the place of the node.
The field of a dataclass carries its reader as metadata (`key(...)`). So one place describes a key:
its type, limits, default, meaning, error text and schema.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from hvdchart.chart_files import read_data
from hvdchart.errors import ErrorCollector, SpecError
from hvdchart.quantity import cpu_millis, memory_bytes
from hvdchart.spec.yaml_tree import CONTROL, Node, Plain, shorten

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_READER = "reader"
_DOC = "doc"


class Reader(Protocol[T_co]):
    """Reads one kind of value."""

    def read(self, node: Node, path: str) -> T_co:
        """Return the checked value of `node`; `path` is its key in messages. Raises SpecError."""

    def schema(self) -> dict[str, Plain]:
        """Return the JSON schema of the values that `read` accepts."""


def wrong_value(node: Node, path: str, expected: str) -> SpecError:
    """Return the error for a wrong value of a key."""
    return SpecError(str(node.place), path, f"got {node.shown}", expected)


@dataclass(frozen=True)
class Number:
    """A number from `low` to `high`."""

    low: float
    high: float
    whole: bool = False

    def read(self, node: Node, path: str) -> Any:
        value: Any = node.value
        # Exactly these types: to Python, True is an integer.
        kinds = (int,) if self.whole else (int, float)
        if type(value) not in kinds or not self.low <= value <= self.high:
            kind = "a whole number" if self.whole else "a number"
            raise wrong_value(node, path, f"{kind} from {self.low} to {self.high}")
        return value if self.whole else float(value)

    def schema(self) -> dict[str, Plain]:
        kind = "integer" if self.whole else "number"
        return {"type": kind, "minimum": self.low, "maximum": self.high}


def Integer(low: int, high: int) -> Reader[int]:  # noqa: N802 - named like the other readers
    """Return a reader of whole numbers from `low` to `high`."""
    return Number(low, high, whole=True)


@dataclass(frozen=True)
class OfType:
    """Any value of one type; `name` is what JSON schemas call it."""

    kind: type
    name: str
    expected: str

    def read(self, node: Node, path: str) -> Any:
        if not isinstance(node.value, self.kind):
            raise wrong_value(node, path, self.expected)
        _check_plain(node, path)
        return node.plain

    def schema(self) -> dict[str, Plain]:
        return {"type": self.name}


def _check_plain(node: Node, path: str) -> None:
    """Raise SpecError for a value that YAML lacks: a spec may be built in Python."""
    value = node.value
    if isinstance(value, dict):
        for key, child in value.items():
            _check_plain(child, f"{path}.{key}")
    elif isinstance(value, list):
        for index, child in enumerate(value):
            _check_plain(child, f"{path}[{index}]")
    elif not isinstance(value, str | int | float | None) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        raise wrong_value(node, path, "text, a number, true, false or null")


BOOLEAN = OfType(bool, "boolean", "true or false")
# The API server checks its content; hvdchart does not.
OBJECT = OfType(dict, "object", "a map")


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
            # The YAML parser refuses these characters, but a spec may be built in Python.
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
            near = suggest_nearest(str(value), self.words)
            raise wrong_value(node, path, f"one of {', '.join(self.words)}{near}")
        return value

    def schema(self) -> dict[str, Plain]:
        return {"type": "string", "enum": list(self.words)}


# Amounts of memory as written elsewhere: 8GB, 8 gb, 8g.
_BYTES = re.compile(r"([0-9]{1,9})\s*([kKmMgGtT])[iI]?[bB]?")


@dataclass(frozen=True)
class _Quantity:
    """A Kubernetes quantity as a whole number of its smallest unit, from `low` to `high`."""

    parse: Callable[[str], int]
    expected: str
    low: int
    high: int
    # The suffix of the smallest unit.
    suffix: str = ""

    def write(self, value: object) -> Plain:
        """Return the YAML value that `read` reads as `value`; it refuses one of another type."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return f"{value}{self.suffix}" if is_number else value

    def read(self, node: Node, path: str) -> int:
        try:
            number = self.parse(node.text)
        except ValueError:
            usual = _BYTES.fullmatch(node.text.strip())
            hint = f"; did you mean {usual[1]}{usual[2].upper()}i?" if usual else ""
            raise wrong_value(node, path, f"{self.expected}{hint}") from None
        if not self.low <= number <= self.high:
            raise wrong_value(node, path, self.expected)
        return number

    def schema(self) -> dict[str, Plain]:
        return {"type": ["string", "number"], "description": self.expected}


def Cpus(low_millis: int = 1) -> Reader[int]:  # noqa: N802
    """Return a reader of CPUs in thousandths, with hyperthreads; `low_millis` is the minimum."""
    expected = f"a number of CPUs from {low_millis / 1000:g} to 16384, such as 4 or 500m"
    return _Quantity(cpu_millis, expected, low_millis, 16384 * 1000, "m")


def Memory(low: str = "16Mi", high: str = "64Ti") -> Reader[int]:  # noqa: N802
    """Return a reader of memory in bytes; the limits are quantities."""
    expected = f"an amount of memory from {low} to {high}, such as 16Gi"
    return _Quantity(memory_bytes, expected, memory_bytes(low), memory_bytes(high))


@dataclass(frozen=True)
class ListOf(Generic[T]):
    """A list; `item` reads each of its items."""

    item: Reader[T]
    shortest: int = 0
    longest: int = 1000

    def read(self, node: Node, path: str) -> tuple[T, ...]:
        if not isinstance(node.value, list):
            raise wrong_value(node, path, "a list")
        if not self.shortest <= len(node.value) <= self.longest:
            raise wrong_value(node, path, f"a list of {self.shortest} to {self.longest} items")
        items = []
        errors = ErrorCollector()
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
    """A map from the user's names to values; `item` reads each value."""

    name: String
    item: Reader[T]
    longest: int = 200

    def read(self, node: Node, path: str) -> Mapping[str, T]:
        if not isinstance(node.value, dict):
            raise wrong_value(node, path, "a map")
        if len(node.value) > self.longest:
            raise wrong_value(node, path, f"a map with at most {self.longest} keys")
        result = {}
        errors = ErrorCollector()
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


def suggest_nearest(word: str, words: Iterable[str], end: str = "") -> str:
    """Return a hint with the known word most similar to `word`; empty if none is similar.

    All words end with `end`; `word` and `words` do not contain it.
    """
    near = difflib.get_close_matches(word, list(words))
    return f" (did you mean {near[0] + end!r}?)" if near else ""


@dataclass(frozen=True)
class ObjectOf(Generic[T]):
    """A map with known keys, read into a dataclass whose fields are declared with `key`."""

    make: type[T]

    def read(self, node: Node, path: str) -> T:
        if not isinstance(node.value, dict):
            raise wrong_value(node, path, f"a map with {_one_of(list(_keys(self.make)))}")
        keys = _keys(self.make)
        prefix = f"{path}." if path else ""
        values = {}
        errors = ErrorCollector()
        for name, child in node.value.items():
            if name not in keys:
                errors.add(
                    SpecError(
                        str(child.key_place or child.place),
                        path,
                        f"unknown key {shorten(name)!r}",
                        f"{_one_of(list(keys))}{suggest_nearest(name, keys)}",
                    )
                )
        for name, field in keys.items():
            if name in node.value:
                reader: Reader[Any] = field.metadata[_READER]
                with errors.step():
                    values[field.name] = reader.read(node.value[name], prefix + name)
            elif _is_required(field):
                errors.add(
                    SpecError(
                        str(node.place), path, f"key {name!r} is missing", str(field.metadata[_DOC])
                    )
                )
        errors.raise_all()
        return self.make(**values)

    def write(self, value: object) -> Plain:
        """Return the map for `value`, the inverse of `read`; `value` need not be valid."""
        if not isinstance(value, self.make):
            return value
        pairs = {}
        for name, field in _keys(self.make).items():
            content = getattr(value, field.name)
            # None stands for a missing key; `read` would refuse a null.
            if content is not None:
                write = getattr(field.metadata[_READER], "write", _plain)
                pairs[name] = write(content)
        return pairs

    def schema(self) -> dict[str, Plain]:
        keys = _keys(self.make)
        properties = {}
        for name, field in keys.items():
            properties[name] = {
                **field.metadata[_READER].schema(),
                "description": field.metadata[_DOC],
            }
            default: object = field.default
            if isinstance(default, str | int):
                properties[name]["default"] = default
        schema: dict[str, Plain] = {"type": "object", "additionalProperties": False}
        required = [name for name, field in keys.items() if _is_required(field)]
        if required:
            schema["required"] = required
        schema["properties"] = properties
        return schema


def key(reader: Reader[Any], doc: str, default: Any = dataclasses.MISSING, name: str = "") -> Any:
    """Return a dataclass field that is read from a key: its name in camelCase, or `name`.

    `doc` describes the key in the schema, in the docs and in messages. Without a default, a spec
    must have the key.
    """
    metadata = {_READER: reader, _DOC: doc, "name": name}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def optional(reader: Reader[Any], doc: str, name: str = "") -> Any:
    """Return a field as `key` does, whose value is None if the spec does not have the key."""
    return key(reader, doc, None, name)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    """Return whether a spec must have the field's key, because it has no default."""
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _keys(kind: type) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of a dataclass that are declared with `key`, by the name of their key."""
    fields = [field for field in dataclasses.fields(kind) if _READER in field.metadata]
    return {field.metadata["name"] or to_camel_case(field.name): field for field in fields}


def _plain(value: object) -> Plain:
    """Return a value of a spec's dataclass in the form that `read` accepts from YAML."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ObjectOf(type(value)).write(value)
    if isinstance(value, Mapping):
        return {key: _plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    return value


def to_camel_case(name: str) -> str:
    """Convert a name to camelCase: cores_per_socket -> coresPerSocket."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _one_of(names: list[str]) -> str:
    return "one of the keys " + ", ".join(names)


API_VERSION = "hvdchart/v1"
_NAME_RULES = read_data("resources.json")
_HOST_LABEL = "a name of a-z, 0-9 and -, with a letter first and no - last"
# The StatefulSet of a run with one group is named NAME-worker.
_OF_ONE_GROUP = _NAME_RULES["statefulSetName"]["alone"] - len("-worker")
_MAX_NAME_CHARACTERS = min(_NAME_RULES["releaseName"], _OF_ONE_GROUP)
RELEASE_NAME = String(_HOST_LABEL, _NAME_RULES["hostLabel"], _MAX_NAME_CHARACTERS)
GROUP_NAME = String(_HOST_LABEL, _NAME_RULES["hostLabel"], _NAME_RULES["groupName"])
OBJECT_NAME = String("the name of a Kubernetes object", r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", 253)
LABEL_KEY = String(
    "a label key such as example.com/node-type",
    r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?",
    317,
)
LABEL_VALUE = String(
    "a label value: up to 63 of A-Z a-z 0-9 - _ .",
    r"([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?)?",
    63,
    0,
)
RESOURCE = String(
    "an extended resource such as nvidia.com/gpu",
    r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?",
    317,
)
ENV_NAME = String(
    "the name of an environment variable: A-Z a-z 0-9 _", r"[A-Za-z_][A-Za-z0-9_]*", 256
)
# Refuse "..": the API server refuses it in a hostPath, and it hides the source of data.
ABSOLUTE = String("an absolute path without ..", r"/(?!(?:.*/)?\.\.(?:/|$))[^\x00-\x1f:]*", 1024)
RELATIVE = String("a relative path without ..", r"(?!/)(?!(?:.*/)?\.\.(?:/|$))[^\x00-\x1f]+", 1024)
HOST = String("a host name or address", r"[A-Za-z0-9]([-.:A-Za-z0-9]*[A-Za-z0-9])?", 253)
INTERFACE = String("the name of a network interface", r"[-._a-zA-Z0-9]+", 15)
IMAGE = String("an image name in lower case without the tag", _NAME_RULES["imageName"], 255)
IMAGE_TAG = String("an image tag", r"[A-Za-z0-9_][-.A-Za-z0-9_]*", 128)
DIGEST = String(
    "an image digest: sha256: and 64 of 0-9 a-f, or sha512: and 128",
    r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}",
    135,
)
NODE_SELECTOR = MapOf(LABEL_KEY, LABEL_VALUE)


class EnvValue:
    """The value of a variable: text, a number in its spelling, or a Kubernetes `valueFrom` map."""

    def read(self, node: Node, path: str) -> str | Mapping[str, Plain]:
        if isinstance(node.value, dict):
            return cast(Mapping[str, Plain], node.plain)
        if isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return node.text
        return String(
            'text or a number ("true" and "" need quotes)', longest=32768, shortest=0
        ).read(node, path)

    def schema(self) -> dict[str, Plain]:
        return {"type": ["string", "number", "object"]}


ENV = MapOf(ENV_NAME, EnvValue())
