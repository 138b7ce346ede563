"""Checks a plan's values against the chart's schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from hvdchart.errors import ErrorCollector, SpecError, ValuesError
from hvdchart.plan.model import Plan
from hvdchart.quantity import parse_quantity
from hvdchart.spec.fields import suggest_nearest
from hvdchart.spec.paths import KeyPath, format_path, nearest_node, value_at
from hvdchart.spec.values_schema import default_values, schema_at, values_schema
from hvdchart.spec.yaml_tree import Plain, SourcePlace, from_plain, shorten
from hvdchart.values.from_plan import make_values
from hvdchart.values.merge import has_null, merged_groups, omit_needless_nulls


def checked_values(plan: Plan, *, needs_image: bool = True) -> dict[str, Plain]:
    """Return the plan's values after a check against the chart's schema.

    Unless `needs_image`, the spec may leave the image open, as one that `discover` writes.
    What only the chart's templates refuse, such as options of another launcher in the spec's
    `values`, Helm reports when it renders the run. Raises SpecError when the spec's `values` are
    wrong, and ValuesError when other values are, which is a defect of hvdchart.
    """
    values = make_values(plan)
    if has_null(values):
        # Keep a null that deletes a default: the schema reports it if the templates need a value.
        values = omit_needless_nulls(values, default_values())
    _check_schema(plan, values)
    if values.get("nameOverride"):
        problem = "without the chart's own name, hvdchart does not find the objects of the release"
        expected = "no nameOverride; fullnameOverride renames the objects"
        raise _make_error(plan, ("nameOverride",), problem, at_key=True, expected=expected)
    if needs_image:
        _check_images(plan, values)
    _check_limits(plan, values)
    return values


def _check_schema(plan: Plan, values: Mapping[str, Plain]) -> None:
    """Raise all errors of the chart's schema as one error."""
    from jsonschema_rs import Draft7Validator

    violations = Draft7Validator(values_schema()).iter_errors(values)
    errors = ErrorCollector()
    for error in sorted(violations, key=lambda error: [str(step) for step in error.instance_path]):
        path: KeyPath = tuple(error.instance_path)
        # The class of `kind` depends on the schema's keyword, which the package's types leave out.
        unexpected: list[str] = getattr(error.kind, "unexpected", [])
        for unknown in sorted(unexpected):
            properties = (schema_at(values_schema(), path) or {}).get("properties", {})
            near = suggest_nearest(unknown, properties)
            problem = f"the chart has no key {shorten(unknown)!r} here{near}"
            with errors.step():
                key = "a key of the chart"
                raise _make_error(plan, (*path, unknown), problem, at_key=True, expected=key)
        if not unexpected:
            problem, expected = _wrong_value(error, path)
            with errors.step():
                raise _make_error(plan, path, problem, expected=expected)
    errors.raise_all()


def _wrong_value(error: Any, path: KeyPath) -> tuple[str, str]:
    """Return the problem of a value, and the expected value, if possible without a pattern."""
    pattern = getattr(error.kind, "pattern", None)
    if pattern is not None:
        schema = values_schema()
        # The chart has its own pattern for the size of a volume in memory.
        if pattern == schema["definitions"]["quantity"]["pattern"] or path[-1] == "sizeLimit":
            example = "4 or 500m" if path[-1] == "cpu" else "8Gi"
            return _got(error), f"a quantity such as {example}"
        meaning = (schema_at(schema, path) or {}).get("description")
        if meaning:
            return _got(error), meaning
    return shorten(error.message, 200), "a value that the chart accepts"


def _got(error: Any) -> str:
    return f"got {shorten(json.dumps(error.instance))}"


def _check_limits(plan: Plan, values: Mapping[str, Plain]) -> None:
    """Refuse limits below the requests of the same container.

    Kubernetes refuses such pods. The chart creates them nevertheless: its templates do not compute
    with quantities.
    """
    errors = ErrorCollector()
    for path, resources in _resources(values):
        limits = resources.get("limits") or {}
        for name, request in (resources.get("requests") or {}).items():
            least = _amount(request)
            most = _amount(limits.get(name))
            if least is None or most is None or least <= most:
                continue
            # Name the key that the user wrote: a group's value may come from that of all workers.
            keys: list[KeyPath] = [
                (*owner, "resources", kind, name)
                for kind in ("limits", "requests")
                for owner in (path, ("worker",))
                if owner == path or path[0] == "workerGroups"
            ]
            written = [key for key in keys if value_at(plan.spec.values, key) is not None]
            key = written[0] if written else keys[0]
            other = "requests" if "limits" in key else "limits"
            bound = f"at least {request}" if other == "requests" else f"at most {limits[name]}"
            expected = f"{bound}, or another `{format_path((*path, 'resources', other, name))}`"
            with errors.step():
                problem = f"the limit {limits[name]} is below the request {request}"
                raise _make_error(plan, key, problem, expected=expected)
    errors.raise_all()


def _resources(values: Mapping[str, Plain]) -> Iterator[tuple[KeyPath, Mapping[str, Plain]]]:
    """Yield the paths of the pods that the chart creates, and their containers' resources."""
    is_grouped = bool(values.get("workerGroups"))
    for index, group in enumerate(merged_groups(values)):
        at: KeyPath = ("workerGroups", index) if is_grouped else ("worker",)
        yield at, group.get("resources") or {}
    for pod in ("master", "tensorboard"):
        of_pod = values.get(pod) or {}
        # TensorBoard has a pod only if it is enabled.
        if pod == "master" or of_pod.get("enabled"):
            yield (pod,), of_pod.get("resources") or {}


def _amount(value: Plain) -> Fraction | None:
    """Return a quantity's number; None without one, or if only Kubernetes can parse it."""
    try:
        return parse_quantity(str(value).removeprefix("+"))
    except ValueError:
        return None


def _check_images(plan: Plan, values: Mapping[str, Plain]) -> None:
    """Refuse values that leave a pod without an image: the chart has no default."""

    def names_image(owner: Mapping[str, Plain]) -> bool:
        return bool((owner.get("image") or {}).get("repository"))

    if names_image(values):
        return
    # Without an image for all pods, the master needs its own. A group uses the image of all
    # workers.
    worker = values.get("worker") or {}
    master = values.get("master") or {}
    groups = values.get("workerGroups") or [worker]
    has_workers = names_image(worker) or all(map(names_image, groups))
    tensorboard = values.get("tensorboard") or {}
    has_others = names_image(tensorboard) or not tensorboard.get("enabled")
    if not names_image(master) or not has_workers or not has_others:
        problem = "no image for some pods, and the chart has no default"
        expected = 'image: {repository: registry.example/team/app, tag: "1.0"}'
        raise _make_error(plan, ("image",), problem, expected=expected, is_of_spec=True)


def _make_error(
    plan: Plan,
    path: KeyPath,
    problem: str,
    *,
    at_key: bool = False,
    expected: str = "a value that the chart accepts",
    is_of_spec: bool = False,
) -> SpecError | ValuesError:
    """Return the error for the value at a path of the values, or for its key (`at_key`).

    With `is_of_spec`, it is an error of the spec, whether its `values` have the key or not.
    """
    is_in_values = bool(path) and path[0] in plan.spec.values
    if path and (is_in_values or is_of_spec):
        # The error caused by `values` may be at the same key of the spec itself.
        value_path = ("values", *path) if is_in_values else path
        node = nearest_node(plan.tree or from_plain({}, SourcePlace("the spec")), value_path)
        place = node.place
        if at_key and node.key_place:
            place = node.key_place
        return SpecError(str(place), format_path(value_path), problem, expected)
    return ValuesError(f"the chart refuses {format_path(path) or 'the values'}: {problem}")
