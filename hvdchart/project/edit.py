"""Set single keys of a spec's file; keep its comments and the order of its keys."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hvdchart.errors import FileError, SpecError
from hvdchart.files import write_atomically
from hvdchart.spec.load import parse_spec
from hvdchart.spec.overlays import split_path
from hvdchart.spec.yaml_tree import Node, Plain, parse


def set_values(file: Path, values: Mapping[str, Plain]) -> None:
    """Set the value at each path, such as nodes.0.count; create missing maps on the way.

    Raises SpecError, and changes nothing, for a setting that has no place and if the spec would
    become wrong; and FileError when the file cannot be read or written.
    """

    def change(root: Any) -> None:
        for path, value in values.items():
            target, key = _target(root, path)
            target[key] = value

    _edit(file, change)


def _edit(file: Path, change: Callable[[Any], None]) -> None:
    """Let `change` edit the file's tree of ruamel.yaml, and write a changed spec that is valid."""
    from ruamel.yaml import YAML

    original = _read(file)
    text = original.replace(b"\r\n", b"\n")
    # Parse it first: this reports the places of errors, and refuses text that ruamel.yaml would
    # change.
    tree = parse(text, str(file))
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 10_000
    if _has_indented_list(tree):
        # Keep the file's own indentation of lists.
        yaml.indent(mapping=2, sequence=4, offset=2)
    root = yaml.load(text)
    change(root)
    stream = io.StringIO()
    yaml.dump(root, stream)
    written = stream.getvalue()
    parse_spec(written, str(file))
    if b"\r\n" in original:
        written = written.replace("\n", "\r\n")
    mark = codecs.BOM_UTF8 if original.startswith(codecs.BOM_UTF8) else b""
    content = mark + written.encode()
    # Whoever watches the file would take the same content for a change.
    if content != original:
        write_atomically(file, content)


def _places(node: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the places of an object in a tree: each map or list, and the key in it."""
    children = node.items() if isinstance(node, dict) else enumerate(node)
    for key, child in children:
        if child is value:
            yield node, key
        elif isinstance(child, dict | list):
            yield from _places(child, value)


def _has_indented_list(node: Node) -> bool:
    """Return whether the dashes of a list are right of its key.

    Then `- ` takes two more columns.
    """
    if isinstance(node.value, dict):
        return any(map(_has_indented_list, node.value.values()))
    if not isinstance(node.value, list) or not node.value:
        return False
    first = node.value[0].place
    key = node.key_place
    is_block = key is not None and first.line > key.line
    if is_block and key is not None and first.column - key.column >= 4:
        return True
    return any(map(_has_indented_list, node.value))


def _read(file: Path) -> bytes:
    """Return the content of a file; raise FileError when it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise FileError(f"{file}: cannot read the spec: {error.strerror}") from error


def _steps(path: str) -> list[str]:
    """Return the keys of a dotted path; raise SpecError for an invalid path."""
    steps = split_path(path)
    if not steps:
        raise SpecError("the spec", "", f"got {path!r}", "a path such as nodes.0.count")
    return steps


def _target(root: Any, path: str) -> tuple[Any, str | int]:
    """Return the map or list that contains a path's key, and the key. Raises SpecError."""
    steps = _steps(path)
    target = _walk(root, steps[:-1], path)
    key = _key(target, steps[-1], path)
    is_present = isinstance(key, int) or key in target
    if is_present:
        anchor = getattr(getattr(target[key], "anchor", None), "value", None)
        places = list(_places(root, target[key])) if anchor else []
        # The change would apply to all aliases of the anchor, which is the first place.
        if len(places) > 1 and places[0][0] is target and places[0][1] == key:
            raise SpecError(
                "the spec",
                path,
                f"other keys use its value (*{anchor})",
                "a key whose value has no anchor; change this one in the file",
            )
    return target, key


def _walk(root: Any, steps: Sequence[str], path: str) -> Any:
    """Return the value at some steps; create missing maps. Raises SpecError."""
    for step in steps:
        key = _key(root, step, path)
        if isinstance(root, dict) and root.get(key) is None:
            root[key] = {}
        root = root[key]
    return root


def _key(target: Any, step: str, path: str) -> str | int:
    """Return a step as a key of a map, which need not exist, or as the index of an existing item.

    Raises SpecError for another index, and for a step below a scalar.
    """
    if isinstance(target, dict):
        return step
    if isinstance(target, list):
        if step.isdecimal() and int(step) < len(target):
            return int(step)
        problem = f"{step!r} is not an item"
        expected = f"a number from 0 to {len(target) - 1}"
        raise SpecError("the spec", path, problem, expected)
    raise SpecError(
        "the spec", path, f"{step!r} is below {target!r}", "a path through maps and lists"
    )
