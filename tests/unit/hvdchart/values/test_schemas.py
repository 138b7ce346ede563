"""Both published schemas are valid, and mean the same to the reference implementation."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from ruamel.yaml import YAML

import tests.chart.test_refusals
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from hvdchart.spec.yaml_tree import parse
from hvdchart.values.build import make_values
from tests.chart.cases import ready_cases
from tests.unit.hvdchart.spec.test_spec import GOOD, WRONG_VALUES
from tests.unit.hvdchart.strategies import damaged_specs, specs

ROOT = Path(__file__).parents[4]
SCHEMAS = {
    name: json.loads((ROOT / name).read_text())
    for name in ("charts/horovod/values.schema.json", "docs/spec.schema.json")
}
VALUES_SCHEMA, SPEC_SCHEMA = SCHEMAS.values()


@cache
def reference() -> ModuleType:
    """The package jsonschema without the formats of addresses, which neither schema has.

    Their grammar takes seconds to compile. Other tests import a copy that has them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rfc3987_syntax", None)
        package = importlib.import_module("jsonschema")
    for name in [name for name in sys.modules if name.partition(".")[0] == "jsonschema"]:
        del sys.modules[name]
    return package


def verdict(schema: dict[str, Any], document: Any) -> bool:
    """Whether `document` is valid, on which both implementations must agree."""
    fast = jsonschema_rs.Draft7Validator(schema).is_valid(document)
    assert reference().Draft7Validator(schema).is_valid(document) == fast, document
    return fast


def parametrized_values(module: object) -> Iterator[Any]:
    """The values of all tests in a module that are parametrized over them."""
    for test in vars(module).values():
        for mark in getattr(test, "pytestmark", []):
            names = [mark.args[0]] if isinstance(mark.args[0], str) else list(mark.args[0])
            if "values" in names:
                yield from (case[names.index("values")] for case in mark.args[1])


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_schema_is_valid_by_its_metaschema(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    reference().Draft7Validator.check_schema(schema)


@pytest.mark.slow
def test_values_schema_accepts_every_ready_case() -> None:
    assert len(ready_cases()) > 10
    assert all(verdict(VALUES_SCHEMA, values) for values in ready_cases().values())


def test_validators_agree_on_values_that_the_chart_refuses() -> None:
    """Some of them the schema refuses, others only a template."""
    verdicts = [
        verdict(VALUES_SCHEMA, case) for case in parametrized_values(tests.chart.test_refusals)
    ]
    assert verdicts.count(True) > 10
    assert verdicts.count(False) >= 6


@pytest.mark.parametrize(
    "spec", sorted((ROOT / "values").glob("*.spec.yaml")), ids=lambda path: path.name
)
def test_spec_schema_accepts_every_example(spec: Path) -> None:
    assert verdict(SPEC_SCHEMA, YAML(typ="safe").load(spec.read_text()))


@pytest.mark.slow
def test_validators_agree_on_wrong_specs() -> None:
    """The schema has the type and the limits of each key, and no rule about several keys."""
    verdicts = []
    for old, new, _, _ in WRONG_VALUES:
        text = GOOD.replace(old, new, 1)
        if not any(number in text for number in ("9999", "1e999", "010", "1_0")):
            verdicts.append(verdict(SPEC_SCHEMA, parse(text.encode(), "a.yaml").plain))
    assert verdicts.count(True) > 20
    assert verdicts.count(False) > 10


@pytest.mark.fuzz
@given(specs())
def test_schemas_accept_right_specs_and_their_values(spec: dict[str, Any]) -> None:
    assert verdict(SPEC_SCHEMA, spec)
    plan = make_plan(parse_spec(json.dumps(spec, ensure_ascii=False).encode()))
    verdict(VALUES_SCHEMA, make_values(plan))


@pytest.mark.fuzz
@given(damaged_specs())
def test_validators_agree_on_damaged_specs(spec: dict[str, Any]) -> None:
    verdict(SPEC_SCHEMA, spec)
    verdict(VALUES_SCHEMA, spec.get("values"))
