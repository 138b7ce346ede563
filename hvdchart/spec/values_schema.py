"""The chart's values schema and default values, and the schema of a single value."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hvdchart.chart_files import chart_dir
from hvdchart.spec.yaml_tree import Plain


@functools.cache
def values_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 7) of the chart's values; all callers share the object."""
    schema: dict[str, Any] = json.loads((chart_dir() / "values.schema.json").read_text("utf-8"))
    return schema


def default_values() -> Plain:
    """Return the content of the chart's values.yaml."""
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load((chart_dir() / "values.yaml").read_text("utf-8"))


def resolve(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a node of `schema`, or the definition that it refers to."""
    reference = node.get("$ref")
    if reference is None:
        return node
    definition: Mapping[str, Any] = schema["definitions"][reference.removeprefix("#/definitions/")]
    return definition


def schema_at(schema: Mapping[str, Any], path: Sequence[str | int]) -> Mapping[str, Any] | None:
    """Return the schema at a path of the values; None when the chart has no such key."""
    node = resolve(schema, schema)
    for step in path:
        child = node.get("items", {}) if isinstance(step, int) else _schema_of_key(node, step)
        if child is False:
            return None
        node = resolve(schema, {} if child is True else child)
    return node


def _schema_of_key(schema: Mapping[str, Any], key: str) -> Any:
    """Return the schema of an object's key; True or False where any or no value is accepted."""
    properties = schema.get("properties", {})
    if key in properties:
        return properties[key]
    for pattern, named in schema.get("patternProperties", {}).items():
        if re.search(pattern, key):
            return named
    # An object without listed properties is a Kubernetes object: any key may follow.
    return schema.get("additionalProperties", "properties" not in schema)
