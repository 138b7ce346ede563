"""Reads a spec's YAML into a validated `Spec`; errors name the place and what was expected."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from hvdchart.errors import FileError, SpecError
from hvdchart.spec.model import Spec
from hvdchart.spec.objects import ObjectOf
from hvdchart.spec.paths import dotted, place_of
from hvdchart.spec.validate import find_contradictions
from hvdchart.spec.yaml_tree import MAX_BYTES, Node, parse


def load_spec(path: str | Path) -> Spec:
    """The spec in a file, or on standard input for "-".

    Raises FileError when it cannot be read and SpecError when it is wrong.
    """
    return read_spec(load_tree(Path(path)))


def load_tree(path: Path) -> Node:
    """The YAML tree of a file, or of standard input for "-".

    Raises FileError when it cannot be read and SpecError when it is not valid YAML.
    """
    # One byte over the limit shows that a file is too long, even one without an end.
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
    """The spec in a YAML tree; raises SpecError."""
    spec = ObjectOf(Spec).read(root, "")
    for path, problem, expected in find_contradictions(spec):
        raise SpecError(str(place_of(root, path)), dotted(path), problem, expected)
    return dataclasses.replace(spec, tree=root)
