"""Strict JSON schemas."""

from __future__ import annotations

from typing import Any

import pytest

from devtools.common.json_schema import forbid_unknown_properties

OPEN = {"properties": {}, "additionalProperties": True}
CLOSED = {"properties": {}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"properties": {}}, CLOSED),
        (OPEN, OPEN),
        ({"type": "object"}, {"type": "object"}),
        ({"items": {"properties": {}}}, {"items": CLOSED}),
        ({"anyOf": [{"properties": {}}]}, {"anyOf": [CLOSED]}),
        ({"$defs": {"note": {"properties": {}}}}, {"$defs": {"note": CLOSED}}),
        ({"$ref": "#/x", "type": "object"}, {"$ref": "#/x"}),
        ({"note": 1, "type": "string"}, {"type": "string"}),
        (
            {"properties": {"note": {"note": 1, "type": "string"}}},
            {"properties": {"note": {"type": "string"}}, "additionalProperties": False},
        ),
    ],
)
def test_objects_with_properties_admit_no_others(schema: Any, strict: Any) -> None:
    assert forbid_unknown_properties(schema, lambda key: key == "note") == strict
