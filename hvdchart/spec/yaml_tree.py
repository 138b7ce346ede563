"""Parse YAML into a tree of nodes with their places; all YAML of users but kubeconfigs.

This is YAML 1.2 with the core types only (text, integer, float, boolean, null, list, map), so `no`,
`on` and dates are text. Anchors, aliases and merge keys are resolved; cycles, duplicate keys, other
tags, several documents and control characters are refused.
"""

from __future__ import annotations

import codecs
import contextlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from hvdchart.errors import SpecError

# Limits of a file, which no real spec reaches: its size, its levels of maps and lists, and its
# values after aliases are followed.
MAX_INPUT_BYTES = 128 * 1024
MAX_LEVELS = 40
MAX_VALUES = 50_000
_MAX_NUMBER_CHARACTERS = 40
_YAML_TAG = "tag:yaml.org,2002:"
# Characters that are invalid in Kubernetes names, paths, arguments and environment variables.
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
Plain: TypeAlias = Any
"""A value of YAML and JSON: None, bool, int, float, str, list of Plain, dict of str to Plain."""


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A place in a file; line and column count from 1. Line 0: the file without a line."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Node:
    """One YAML value: `value` is a scalar, a list of nodes or a dict of nodes.

    `text` is the spelling of a scalar (0.10 stays 0.10); `key_place` is the place of its key.
    """

    place: SourcePlace
    value: bool | int | float | str | list[Node] | dict[str, Node] | None
    text: str = ""
    key_place: SourcePlace | None = None

    @property
    def plain(self) -> Plain:
        """The value without places."""
        if isinstance(self.value, dict):
            return {key: child.plain for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain for child in self.value]
        return self.value

    @property
    def shown(self) -> str:
        """Format the value for an error message: short, on one line."""
        if isinstance(self.value, dict):
            return f"a map with {len(self.value)} keys" if self.value else "an empty map"
        if isinstance(self.value, list):
            return f"a list of {len(self.value)}" if self.value else "an empty list"
        if self.value is None:
            return "nothing (null)"
        return shorten(repr(self.value) if isinstance(self.value, str) else self.text)


def shorten(text: str, limit: int = 60) -> str:
    """Cut `text` to `limit` characters, with a mark where it was cut."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def from_plain(value: Plain, place: SourcePlace) -> Node:
    """Return the tree of a plain value, all of it at one place.

    A value of a type that YAML lacks also becomes a node; no reader accepts it.
    """
    if isinstance(value, dict):
        children = {str(key): from_plain(child, place) for key, child in value.items()}
        return Node(place, children, "", place)
    if isinstance(value, list):
        return Node(place, [from_plain(child, place) for child in value], "", place)
    return Node(place, value, value if isinstance(value, str) else repr(value), place)


def parse_document(data: bytes, file: str) -> Node:
    """Return the tree of the single document in `data`; raise SpecError at the first error."""
    (root,) = _compose(_decode(data, file), file, lambda yaml, text: [yaml.compose(text)])
    if root is None:
        raise _error(SourcePlace(file), "the file holds no YAML value", "a spec")
    return _Builder(file).build(root, ())


def parse_documents(data: bytes, file: str) -> list[Node]:
    """Return the trees of all documents, in which 0700 and 1_000 are the numbers that Helm reads.

    Empty for a file without a document. Raises SpecError at the first error.
    """
    roots = _compose(_decode(data, file), file, lambda yaml, text: list(yaml.compose_all(text)))
    return [_Builder(file, yaml_1_1=True).build(root, ()) for root in roots]


def _decode(data: bytes, file: str) -> str:
    """Return the text of a file, without a byte order mark. Raises SpecError if it is no text."""
    if len(data) > MAX_INPUT_BYTES:
        raise _error(SourcePlace(file), "the file is too long", f"at most {MAX_INPUT_BYTES} bytes")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = _place_in(data[: error.start].decode("utf-8", "replace"), file)
        raise _error(
            place, f"byte 0x{data[error.start]:02x} is not UTF-8", "text in UTF-8"
        ) from error
    bad = CONTROL.search(text)
    if bad:
        place = _place_in(text[: bad.start()], file)
        raise _error(place, f"control character {bad[0]!r}", "printable text")
    return text


def _place_in(before: str, file: str) -> SourcePlace:
    """Return the place in a file after the text `before`."""
    lines = before.split("\n")
    return SourcePlace(file, len(lines), len(lines[-1]) + 1)


def _compose(text: str, file: str, compose: Callable[[Any, str], list[Any]]) -> list[Any]:
    """Call `compose` with the parser and the text. Raises SpecError for broken YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import MaxDepthExceededError
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth = MAX_LEVELS
    # The name of an anchor may be reused; the parser would warn on stderr.
    yaml.composer.warn_double_anchors = False
    try:
        return compose(yaml, text)
    except MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        place = (
            SourcePlace(file, mark.line + 1, mark.column + 1) if mark else SourcePlace(file, 1, 1)
        )
        if isinstance(error, MaxDepthExceededError):
            raise _error(place, "nested too deep", f"at most {MAX_LEVELS} levels") from None
        problem = " ".join((error.problem or error.context or "not YAML").split())
        begins: Any = error.context_mark
        if begins and begins is not mark:
            problem += f", in what begins at {begins.line + 1}:{begins.column + 1}"
        raise _error(place, f"broken YAML: {problem}", "one YAML document") from error
    except (
        YAMLError,
        ArithmeticError,
        ValueError,
        TypeError,
        AttributeError,
        AssertionError,
        LookupError,
    ) as error:
        # The parser raises these for some malformed input, without a place.
        detail = shorten(" ".join(str(error).split()), 100) or type(error).__name__
        raise _error(SourcePlace(file), f"broken YAML: {detail}", "plain YAML") from error


class _Builder:
    """Builds `Node`s from the parser's nodes, and counts them: nested aliases can mean billions."""

    def __init__(self, file: str, *, yaml_1_1: bool = False) -> None:
        self.file = file
        self.yaml_1_1 = yaml_1_1
        self.count = 0

    def build(
        self, node: Any, above: tuple[int, ...], key_place: SourcePlace | None = None
    ) -> Node:
        """Return the tree of a parser's node; `above` are the IDs of the nodes that contain it.

        Raises SpecError for a cycle, for too many levels or values, and for a tag of YAML.
        """
        place = SourcePlace(self.file, node.start_mark.line + 1, node.start_mark.column + 1)
        if node.value == "" and key_place:
            # The parser places a missing value at the next token, often lines below its key.
            place = key_place
        self.count += 1
        if self.count > MAX_VALUES:
            raise _error(place, "aliases expand to too many values", f"at most {MAX_VALUES} values")
        if id(node) in above:
            raise _error(place, "an alias is inside its own anchor", "no cycle")
        if len(above) >= MAX_LEVELS:  # the parser counts levels before aliases are followed
            raise _error(place, "nested too deep", f"at most {MAX_LEVELS} levels")
        if node.id == "scalar":
            return Node(place, _scalar(node, place, self.yaml_1_1), node.value, key_place)
        is_map = node.id == "mapping"
        inside = (*above, id(node))
        if str(node.tag) != _YAML_TAG + ("map" if is_map else "seq"):
            raise _error(place, f"tag {node.tag}", "a value without a YAML tag")
        if is_map:
            return Node(place, self._mapping(node, inside), key_place=key_place)
        return Node(place, [self.build(child, inside) for child in node.value], "", key_place)

    def _mapping(self, node: Any, above: tuple[int, ...]) -> dict[str, Node]:
        pairs: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key, value in node.value:
            if key.tag == _YAML_TAG + "merge":
                merged |= self._maps_to_merge(value, above, known=merged)
                continue
            place = SourcePlace(self.file, key.start_mark.line + 1, key.start_mark.column + 1)
            name = self._key(key, place)
            if name in pairs:
                raise _error(place, f"key {name!r} is given twice in one map", "each key once")
            pairs[name] = self.build(value, above, place)
        return {**merged, **pairs}

    def _maps_to_merge(
        self, value: Any, above: tuple[int, ...], known: dict[str, Node]
    ) -> dict[str, Node]:
        """Return the pairs of one map or a list of maps, without `known` keys.

        The first map wins, and its keys come first.
        """
        merged: dict[str, Node] = {}
        for child in value.value if value.id == "sequence" else [value]:
            source = self.build(child, above)
            if not isinstance(source.value, dict):
                raise SpecError(str(source.place), "<<", f"got {source.shown}", "a map to merge")
            merged |= {key: node for key, node in source.value.items() if key not in merged}
        return {name: node for name, node in merged.items() if name not in known}

    @staticmethod
    def _key(key: Any, place: SourcePlace) -> str:
        if key.id != "scalar":
            # In YAML, {{ .Values.x }} of a Helm or Jinja template is a map in a map.
            expected = "text as a key (a template with {{ }} must be rendered first)"
            raise _error(place, "a map or list as a key", expected)
        value = _scalar(key, place)
        if not isinstance(value, str):
            raise _error(place, f"key {shorten(key.value)} is not text", f'quotes: "{key.value}"')
        return value


def _scalar(
    node: Any, place: SourcePlace, yaml_1_1: bool = False
) -> bool | int | float | str | None:
    """Return a scalar's Python value; raise SpecError for a tag or text that is not allowed."""
    raw: str = node.value
    tag = str(node.tag)
    if tag in {_YAML_TAG + kind for kind in ("str", "timestamp", "value", "merge")}:
        bad = CONTROL.search(raw)
        if bad:
            raise _error(place, f"control character {bad[0]!r}", "printable text")
        return raw
    if tag == _YAML_TAG + "null":
        return None
    if tag == _YAML_TAG + "bool" and raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    if tag in (_YAML_TAG + "int", _YAML_TAG + "float"):
        if yaml_1_1:
            raw = re.sub(r"^([-+]?)0(?=[0-7]+$)", r"\g<1>0o", raw.replace("_", ""))
        return _number(raw, tag == _YAML_TAG + "int", place)
    raise _error(place, f"tag {tag.removeprefix(_YAML_TAG)}", "a value without a YAML tag")


def _number(raw: str, is_integer: bool, place: SourcePlace) -> int | float:
    """Return the number in a scalar.

    Raises SpecError for a number that is not finite, or that YAML 1.1 and 1.2 read differently.
    """
    if "_" in raw:
        # YAML 1.2 reads a text, Helm's YAML reads 1000.
        expected = f"{raw.replace('_', '')}, or quotes for text"
        raise _error(place, f"number {shorten(raw)} with '_'", expected)
    # Base 0 refuses 010, which is octal in Helm's YAML and ten in YAML 1.2.
    number: int | float = math.nan
    if len(raw) <= _MAX_NUMBER_CHARACTERS:
        with contextlib.suppress(ValueError):
            number = int(raw, 0) if is_integer else float(raw)
    if not math.isfinite(number):
        expected = "a finite decimal number, or quotes for text"
        raise _error(place, f"number {shorten(raw)}", expected)
    return number


def _error(place: SourcePlace, problem: str, expected: str) -> SpecError:
    return SpecError(str(place), "", problem, expected)
