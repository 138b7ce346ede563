"""Checks a plan's values against the chart's schema before Helm sees them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hvdchart.errors import SpecError, ValuesError
from hvdchart.plan.model import Plan
from hvdchart.spec.fields import nearest
from hvdchart.spec.load import dotted, nearest_node
from hvdchart.spec.yaml_tree import Plain, shorten
from hvdchart.values.build import make_values
from hvdchart.values.chart import default_values, resolved, schema_at, values_schema
from hvdchart.values.merge import nulls, settled

if TYPE_CHECKING:
    from jsonschema_rs import Draft7Validator


def checked_values(plan: Plan) -> dict[str, Plain]:
    """The plan's values when the chart takes them; raises SpecError at the spec's `values` else.

    ValuesError, without a place in the spec, means a defect of hvdchart.
    """
    values = make_values(plan)
    schema = values_schema()
    if any(True for _ in nulls(values)):
        for null in nulls(values):
            _refuse_needed(plan, schema, null)
        values = settled(values, default_values())
    errors = list(_validator().iter_errors(_without_nulls(values)))
    if errors:
        first = min(errors, key=lambda error: [str(step) for step in error.instance_path])
        path: tuple[str | int, ...] = tuple(first.instance_path)
        problem = shorten(first.message, 200)
        # Each keyword has a class of its own here, which the package's types do not name.
        unexpected: list[str] = getattr(first.kind, "unexpected", [])
        if unexpected:
            known = schema_at(schema, first.schema_path[:-1]).get("properties", {})
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

    return Draft7Validator(values_schema())


def _without_nulls(value: Plain) -> Plain:
    if isinstance(value, Mapping):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    return value
