"""The published schema of specs says what hvdchart accepts, and both schemas are valid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given

from hvdchart.spec.yaml_tree import parse
from tests.unit.hvdchart.spec.test_spec import GOOD, WRONG_VALUES
from tests.unit.hvdchart.strategies import specs

ROOT = Path(__file__).parents[4]
SPEC_SCHEMA = json.loads((ROOT / "docs/spec.schema.json").read_text())
VALIDATOR = jsonschema_rs.Draft7Validator(SPEC_SCHEMA)


@pytest.mark.parametrize("name", ["charts/horovod/values.schema.json", "docs/spec.schema.json"])
def test_schema_is_valid_by_its_metaschema(name: str) -> None:
    schema = json.loads((ROOT / name).read_text())
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema_rs.meta.validate(schema)


def test_spec_schema_refuses_values_of_a_wrong_type_or_size() -> None:
    """It has no rule about several keys, and YAML's own rules are not those of a schema."""
    texts = [GOOD.replace(old, new, 1) for old, new, _, why in WRONG_VALUES if "number" not in why]
    trees = [parse(text.encode(), "a").plain for text in texts]
    assert sum(not VALIDATOR.is_valid(tree) for tree in trees) > 10


@pytest.mark.fuzz
@given(specs())
def test_spec_schema_accepts_right_specs(spec: dict[str, Any]) -> None:
    VALIDATOR.validate(spec)
