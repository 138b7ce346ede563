"""Where the chart is, what its defaults are, and whether it takes some values."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hvdchart.errors import FileError, SpecError, ValuesError
from hvdchart.fields import nearest
from hvdchart.merging import nulls, settled
from hvdchart.plan import Plan
from hvdchart.spec import dotted, nearest_node
from hvdchart.values import make_values
from hvdchart.yaml_tree import Plain, shorten

if TYPE_CHECKING:
    from jsonschema_rs import Draft7Validator


def chart_dir() -> Path:
    """The chart's directory: inside an installed wheel, or beside this package in a checkout."""
    package = Path(__file__).resolve().parent
    for candidate in (package / "chart", package.parent / "charts" / "horovod"):
        if (candidate / "Chart.yaml").is_file():
            return candidate
    problem = "the chart is neither in the package nor in charts/horovod beside it"
    raise FileError(f"{package}: {problem}; install the package again")


def checked_values(plan: Plan) -> dict[str, Plain]:
    """The plan's values when the chart takes them; raises SpecError at the spec's `values` else.

    ValuesError, without a place in the spec, means a defect of hvdchart.
    """
    values = make_values(plan)
    schema = _schema()
    if any(True for _ in nulls(values)):
        for null in nulls(values):
            _refuse_needed(plan, schema, null)
        values = settled(values, _defaults())
    errors = list(_validator().iter_errors(_without_nulls(values)))
    if errors:
        first = min(errors, key=lambda error: [str(step) for step in error.instance_path])
        path: tuple[str | int, ...] = tuple(first.instance_path)
        problem = shorten(first.message, 200)
        # Each keyword has a class of its own here, which the package's types do not name.
        unexpected: list[str] = getattr(first.kind, "unexpected", [])
        if unexpected:
            known = _at(schema, first.schema_path[:-1]).get("properties", {})
            unknown = min(unexpected)
            problem = f"the chart has no key {shorten(unknown)!r} here{nearest(unknown, known)}"
            raise _refused(plan, (*path, unknown), problem, at_key=True)
        raise _refused(plan, path, problem)
    return values


def _refuse_needed(plan: Plan, schema: Mapping[str, Any], path: tuple[str, ...]) -> None:
    """A null takes the chart's default away; its templates need one wherever the schema says so."""
    node: Any = schema
    for step in path:
        node = resolved(schema, node).get("properties", {}).get(step)
        if node is None:
            return
    kinds = resolved(schema, node).get("type", "null")
    if "null" not in ([kinds] if isinstance(kinds, str) else kinds):
        raise _refused(plan, path, f"null deletes what the chart needs; give it {kinds} instead")


def resolved(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """A node of the schema, or the definition that it refers to."""
    reference = node.get("$ref")
    if reference is None:
        return node
    found: Mapping[str, Any] = schema["definitions"][reference.removeprefix("#/definitions/")]
    return found


def _at(schema: Mapping[str, Any], path: Sequence[str | int]) -> Mapping[str, Any]:
    """What stands at a path of the schema."""
    node: Any = schema
    for step in path:
        node = resolved(schema, node) if step == "$ref" else node[step]
    found: Mapping[str, Any] = node
    return found


def _refused(
    plan: Plan, path: tuple[str | int, ...], problem: str, at_key: bool = False
) -> SpecError | ValuesError:
    """The error for what stands at a path of the values; `at_key`: its key is what is wrong."""
    tree = plan.spec.tree
    if tree is not None and path[:1] and path[0] in plan.spec.values:
        where = ("values", *path)
        node = nearest_node(tree, where)
        place = (at_key and node.key_place) or node.place
        return SpecError(str(place), dotted(where), problem, "what the chart takes there")
    return ValuesError(f"the chart refuses {dotted(path) or 'the values'}: {problem}")


@functools.cache
def _validator() -> Draft7Validator:
    from jsonschema_rs import Draft7Validator

    return Draft7Validator(_schema())


@functools.cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((chart_dir() / "values.schema.json").read_text("utf-8"))
    return schema


def _defaults() -> Plain:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load((chart_dir() / "values.yaml").read_text("utf-8"))


def _without_nulls(value: Plain) -> Plain:
    if isinstance(value, Mapping):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    return value
