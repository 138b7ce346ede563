"""Reads maps with known keys into dataclasses.

Each field of a dataclass carries its reader as metadata (`key(...)`), so that a key is described in
one place only: its type, limits, default, meaning, error text and schema.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hvdchart.errors import ErrorCollector, SpecError
from hvdchart.spec.fields import Reader, nearest, wrong_value
from hvdchart.spec.yaml_tree import Node, Plain, shorten

T = TypeVar("T")
_READER = "reader"
_DOC = "doc"


@dataclass(frozen=True)
class ObjectOf(Generic[T]):
    """A map with known keys, read into a dataclass whose fields are declared with `key`."""

    make: type[T]

    def read(self, node: Node, path: str) -> T:
        if not isinstance(node.value, dict):
            raise wrong_value(node, path, f"a map with {_one_of(list(_keys(self.make)))}")
        keys = _keys(self.make)
        prefix = f"{path}." if path else ""
        values, errors = {}, ErrorCollector()
        for name, child in node.value.items():
            if name not in keys:
                errors.add(SpecError(
                    str(child.key_place or child.place), path, f"unknown key {shorten(name)!r}",
                    f"{_one_of(list(keys))}{nearest(name, keys)}",
                ))  # fmt: skip
        for name, field in keys.items():
            if name in node.value:
                reader: Reader[Any] = field.metadata[_READER]
                with errors.step():
                    values[field.name] = reader.read(node.value[name], prefix + name)
            elif field.default is field.default_factory is dataclasses.MISSING:
                errors.add(SpecError(
                    str(node.place), path, f"key {name!r} is missing", str(field.metadata[_DOC])
                ))  # fmt: skip
        errors.raise_all()
        return self.make(**values)

    def write(self, value: object) -> Plain:
        """The map that `read` reads as `value`, which need not be a right one."""
        if not isinstance(value, self.make):
            return value
        pairs = {}
        for name, field in _keys(self.make).items():
            given = getattr(value, field.name)
            # None is a key that is left out; as a null, `read` would refuse it.
            if given is not None:
                write = getattr(field.metadata[_READER], "write", _plain)
                pairs[name] = write(given)
        return pairs

    def schema(self) -> dict[str, Plain]:
        keys = _keys(self.make)
        missing = dataclasses.MISSING
        required = [n for n, f in keys.items() if f.default is f.default_factory is missing]
        properties = {}
        for name, field in keys.items():
            properties[name] = {
                **field.metadata[_READER].schema(),
                "description": field.metadata[_DOC],
            }
            default: object = field.default
            if isinstance(default, str | int):
                properties[name]["default"] = default
        closed: dict[str, Plain] = {"type": "object", "additionalProperties": False}
        return {**closed, **({"required": required} if required else {}), "properties": properties}


def key(reader: Reader[Any], doc: str, default: Any = dataclasses.MISSING, name: str = "") -> Any:
    """A dataclass field read from a key: the field's name in camelCase, or `name`."""
    metadata = {_READER: reader, _DOC: doc, "name": name}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _keys(kind: type) -> dict[str, dataclasses.Field[Any]]:
    fields = [field for field in dataclasses.fields(kind) if _READER in field.metadata]
    return {field.metadata["name"] or camel(field.name): field for field in fields}


def _plain(value: object) -> Plain:
    """A value of a dataclass's field as YAML would have it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ObjectOf(type(value)).write(value)
    if isinstance(value, Mapping):
        return {key: _plain(child) for key, child in value.items()}
    return [_plain(child) for child in value] if isinstance(value, list | tuple) else value


def camel(name: str) -> str:
    """cores_per_socket -> coresPerSocket."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _one_of(names: list[str]) -> str:
    return "one of the keys " + ", ".join(names)
