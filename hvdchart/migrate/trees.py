"""Walks and compares trees of values, and finds what the chart's schema says of them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hvdchart.spec.paths import KeyPath, child_at, dotted
from hvdchart.spec.yaml_tree import Plain, shorten
from hvdchart.values.schema import schema_at


def value_at_text(values: Plain, path: Sequence[str]) -> Plain:
    """The value at a path in which indices of lists are text."""
    for step in path:
        values = child_at(values, int(step) if isinstance(values, list) else step)
    return values


def nulls_in_lists(value: Plain) -> Iterator[Plain]:
    """The nulls among the items of the lists in a tree."""
    if isinstance(value, list):
        yield from (item for item in value if item is None)
    children: Any = value.values() if isinstance(value, dict) else value
    for child in children if isinstance(value, dict | list) else ():
        yield from nulls_in_lists(child)


def shown(value: Plain) -> str:
    """The value as an error message quotes it."""
    return shorten(json.dumps(value, ensure_ascii=False))


def leaves(value: Plain, path: KeyPath) -> Iterator[KeyPath]:
    """The paths of all scalars and of all empty maps and lists."""
    children: Any = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    empty = True
    for step, child in children:
        empty = False
        yield from leaves(child, (*path, step))
    if empty:
        yield path


def without_nulls(value: Plain) -> Plain:
    """`value` without the nulls in its maps."""
    if isinstance(value, dict):
        return {k: without_nulls(child) for k, child in value.items() if child is not None}
    if isinstance(value, list):
        return [without_nulls(child) for child in value]
    return value


def schema_error(schema: Mapping[str, Any], path: Sequence[str], value: Plain) -> str:
    """Why the chart rejects `value` at `path`; empty when it accepts it."""
    from jsonschema_rs import Draft7Validator

    below = schema_at(schema, path)
    if below is None:
        return f"the chart has no {dotted(path)}"
    validator = Draft7Validator({**below, "definitions": schema.get("definitions", {})})
    error = next(iter(validator.iter_errors(value)), None)
    return "" if error is None else str(error.message)
