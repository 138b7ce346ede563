"""The published schema of specs says what hvdchart accepts, and both schemas are valid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given

from tests.unit.hvdchart.strategies import specs

ROOT = Path(__file__).parents[4]
SPEC_SCHEMA = json.loads((ROOT / "docs/spec.schema.json").read_text())
VALIDATOR = jsonschema_rs.Draft7Validator(SPEC_SCHEMA)


@pytest.mark.parametrize("name", ["charts/horovod/values.schema.json", "docs/spec.schema.json"])
def test_schema_is_valid_by_its_metaschema(name: str) -> None:
    schema = json.loads((ROOT / name).read_text())
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema_rs.meta.validate(schema)


@pytest.mark.fuzz
@given(specs())
def test_spec_schema_accepts_right_specs(spec: dict[str, Any]) -> None:
    VALIDATOR.validate(spec)
