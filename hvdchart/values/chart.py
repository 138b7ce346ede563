"""Where the chart is, its values schema and its default values."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hvdchart.errors import FileError
from hvdchart.spec.yaml_tree import Plain


def chart_dir() -> Path:
    """The chart's directory: inside an installed wheel, or beside this package in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "chart", package.parent / "charts" / "horovod"):
        if (candidate / "Chart.yaml").is_file():
            return candidate
    problem = "the chart is neither in the package nor in charts/horovod beside it"
    raise FileError(f"{package}: {problem}; install the package again")


def resolved(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """A node of the schema, or the definition that it refers to."""
    reference = node.get("$ref")
    if reference is None:
        return node
    found: Mapping[str, Any] = schema["definitions"][reference.removeprefix("#/definitions/")]
    return found


def schema_at(schema: Mapping[str, Any], path: Sequence[str | int]) -> Mapping[str, Any]:
    """What stands at a path of the schema."""
    node: Any = schema
    for step in path:
        node = resolved(schema, node) if step == "$ref" else node[step]
    found: Mapping[str, Any] = node
    return found


@functools.cache
def values_schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((chart_dir() / "values.schema.json").read_text("utf-8"))
    return schema


def default_values() -> Plain:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load((chart_dir() / "values.yaml").read_text("utf-8"))
