"""Reads a spec's YAML into a validated `Spec`; errors name the place and what was expected."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from hvdchart.errors import ErrorCollector, FileError, SpecError
from hvdchart.spec.fields import ObjectOf
from hvdchart.spec.horovodrun import replace_horovodrun_line
from hvdchart.spec.model import Spec
from hvdchart.spec.overlays import apply_settings, merge_specs
from hvdchart.spec.paths import format_path, nearest_node
from hvdchart.spec.validate import find_contradictions
from hvdchart.spec.yaml_tree import (
    MAX_INPUT_BYTES,
    Node,
    Plain,
    SourcePlace,
    from_plain,
    parse_document,
)


def load_spec(
    path: str | Path,
    *more: str | Path,
    settings: Iterable[str] = (),
    values: Mapping[str, Plain] | None = None,
) -> Spec:
    """Return the spec in a file, or on standard input for "-".

    Further files are merged into it, and then each `path=value` of `settings` is set, as the
    command does with its files and --set. `values` are merged last into the spec's `values`. Raises
    FileError when a file cannot be read and SpecError when the spec is wrong.
    """
    return read_spec(load_specs([path, *more], settings, values))


def load_specs(
    paths: Iterable[str | Path],
    settings: Iterable[str] = (),
    values: Mapping[str, Plain] | None = None,
) -> Node:
    """Return the YAML tree that `load_spec` reads, before it is checked.

    Raises FileError when a file cannot be read. Raises SpecError for text that is not YAML, and for
    a setting that has no place.
    """
    tree = apply_settings(merge_specs([load_tree(Path(path)) for path in paths]), settings)
    if values:
        tree = merge_specs(
            [tree, from_plain({"values": dict(values)}, SourcePlace("the given values"))]
        )
    return tree


def load_tree(path: Path) -> Node:
    """Return the YAML tree of a file, or of standard input for "-".

    Raises FileError when it cannot be read, and SpecError for text that is not YAML.
    """
    return parse_document(*read_bytes(path))


def read_bytes(path: Path) -> tuple[bytes, str]:
    """Return the content of a file, or of standard input for "-", and its name.

    Reads at most MAX_INPUT_BYTES + 1. Raises FileError when the file cannot be read.
    """
    # One byte over the limit shows that a file is too long.
    if str(path) == "-":
        if sys.stdin is None:
            raise FileError("standard input is closed")
        return sys.stdin.buffer.read(MAX_INPUT_BYTES + 1), "<stdin>"
    try:
        with path.open("rb") as file:
            return file.read(MAX_INPUT_BYTES + 1), str(path)
    except OSError as error:
        raise FileError(f"{path}: cannot read the file: {error.strerror}") from error


def parse_spec(data: bytes | str, file: str = "<spec>", *, settings: Iterable[str] = ()) -> Spec:
    """Return the spec in `data`; `file` is its name in messages. Raises SpecError.

    Each `path=value` of `settings` is set as the command does with --set.
    """
    text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return read_spec(apply_settings(parse_document(text, file), settings))


def read_spec(root: Node) -> Spec:
    """Return the spec in a YAML tree, without a line of horovodrun.

    Raises SpecError with all errors in it. Contradictions between keys are checked only if each key
    alone is valid.
    """
    spec, problems = replace_horovodrun_line(ObjectOf(Spec).read(root, ""))
    errors = ErrorCollector()
    for path, problem, expected in problems or find_contradictions(spec):
        place = str(nearest_node(root, path).place)
        errors.add(SpecError(place, format_path(path), problem, expected))
    errors.raise_all()
    return spec


def checked_spec(spec: Spec) -> Spec:
    """Check a spec that may have been built or changed in Python, and return it.

    A list becomes a tuple, as in a spec from YAML. Raises SpecError if the spec is wrong.
    """
    return read_spec(from_plain(ObjectOf(Spec).write(spec), SourcePlace("the spec")))
