"""Checks a plan's values against the chart's schema."""

from __future__ import annotations

from collections.abc import Mapping

from hvdchart.errors import ErrorCollector, SpecError, ValuesError
from hvdchart.plan.model import Plan
from hvdchart.spec.fields import nearest
from hvdchart.spec.paths import KeyPath, dotted, nearest_node
from hvdchart.spec.yaml_tree import Place, Plain, from_plain, shorten
from hvdchart.values.build import make_values
from hvdchart.values.merge import has_null, omit_needless_nulls
from hvdchart.values.schema import default_values, schema_at, values_schema


def checked_values(plan: Plan) -> dict[str, Plain]:
    """The plan's values, checked against the chart's schema.

    What only the chart's templates refuse, such as options of another launcher in the spec's
    `values`, Helm reports when it renders the run. Raises SpecError when the spec's `values` are
    wrong, and ValuesError when other values are, which is a defect of hvdchart.
    """
    values = make_values(plan)
    if has_null(values):
        # A null that stays deletes a default: the schema says where the templates need a value.
        values = omit_needless_nulls(values, default_values())
    _check_schema(plan, values)
    _check_images(plan, values)
    return values


def _check_schema(plan: Plan, values: Mapping[str, Plain]) -> None:
    """Raise all that the chart's schema refuses as one error."""
    from jsonschema_rs import Draft7Validator

    violations = Draft7Validator(values_schema()).iter_errors(values)
    errors = ErrorCollector()
    for error in sorted(violations, key=lambda error: [str(step) for step in error.instance_path]):
        where: KeyPath = tuple(error.instance_path)
        # The class of `kind` depends on the schema's keyword, which the package's types leave out.
        unexpected: list[str] = getattr(error.kind, "unexpected", [])
        for unknown in sorted(unexpected):
            known = (schema_at(values_schema(), where) or {}).get("properties", {})
            problem = f"the chart has no key {shorten(unknown)!r} here{nearest(unknown, known)}"
            with errors.step():
                raise _refused(plan, (*where, unknown), problem, at_key=True)
        if not unexpected:
            with errors.step():
                raise _refused(plan, where, shorten(error.message, 200))
    errors.raise_all()


def _check_images(plan: Plan, values: Mapping[str, Plain]) -> None:
    """Refuse values that leave a pod without an image: the chart has no default."""

    def names_image(owner: Mapping[str, Plain]) -> bool:
        return bool((owner.get("image") or {}).get("repository"))

    if names_image(values):
        return
    # Without an image of all pods, the master needs its own, and a group has that of all workers.
    worker = values.get("worker") or {}
    master = values.get("master") or {}
    groups = values.get("workerGroups") or [worker]
    has_workers = names_image(worker) or all(map(names_image, groups))
    if not names_image(master) or not has_workers:
        problem = "no image for some pods, and the chart has no default"
        expected = 'image: {repository: registry.example/team/app, tag: "1.0"}'
        raise _refused(plan, ("image",), problem, expected=expected)


def _refused(
    plan: Plan, path: KeyPath, problem: str, at_key: bool = False, expected: str = ""
) -> SpecError | ValuesError:
    """The error for the value at a path of the values, or for its key (`at_key`).

    With `expected`, it is one of the spec, whether its `values` have the key or not.
    """
    is_in_values = bool(path) and path[0] in plan.spec.values
    if path and (is_in_values or expected):
        # What `values` makes wrong may be at the same key of the spec itself.
        where = ("values", *path) if is_in_values else path
        node = nearest_node(plan.tree or from_plain({}, Place("the spec")), where)
        place = node.place
        if at_key and node.key_place:
            place = node.key_place
        what = "a key of the chart" if at_key else "a value that the chart accepts"
        return SpecError(str(place), dotted(where), problem, expected or what)
    return ValuesError(f"the chart refuses {dotted(path) or 'the values'}: {problem}")
