"""A spec's text -> the validated `Spec`; every error says where, what and the way out."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from hvdchart.errors import FileError, SpecError
from hvdchart.spec.model import Spec
from hvdchart.spec.objects import Table
from hvdchart.spec.validate import Path as KeyPath
from hvdchart.spec.validate import contradictions
from hvdchart.spec.yaml_tree import MAX_BYTES, Node, Place, Plain, parse, shorten


def load_spec(path: str | Path) -> Spec:
    """The spec in a file; raises FileError when it is unreadable, SpecError when it is wrong."""
    return read_spec(load_tree(Path(path)))


def load_tree(path: Path) -> Node:
    """The YAML tree of a file, or of standard input for "-".

    Raises FileError when it is unreadable and SpecError for broken YAML.
    """
    # One byte over the limit is enough to see that there is too much, be it endless.
    if str(path) == "-":
        return parse(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>")
    try:
        with path.open("rb") as file:
            return parse(file.read(MAX_BYTES + 1), str(path))
    except OSError as error:
        raise FileError(f"{path}: cannot read the spec: {error.strerror}") from error


def parse_spec(data: bytes, file: str = "<spec>") -> Spec:
    """The spec in `data`; `file` is its name in messages. Raises SpecError."""
    return read_spec(parse(data, file))


def read_spec(root: Node) -> Spec:
    """The spec that a tree holds; raises SpecError."""
    spec = Table(Spec).read(root, "")
    for path, problem, expected in contradictions(spec):
        raise SpecError(str(place_of(root, path)), dotted(path), problem, expected)
    return dataclasses.replace(spec, tree=root)


def place_of(root: Node, path: KeyPath) -> Place:
    """Where the value at `path` stands, or the last one on the way to it that exists."""
    return nearest_node(root, path).place


def nearest_node(root: Node, path: KeyPath) -> Node:
    """The node at `path`, or the last one on the way to it that exists."""
    node = root
    for step in path:
        value: Plain = node.value
        if isinstance(value, dict):
            value = value.get(str(step))
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            break
        if value is None:
            break
        node = value
    return node


def dotted(path: KeyPath) -> str:
    """A path as messages write it: nodes[0].count."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{shorten(step)}" for step in path)
    return text.removeprefix(".")
