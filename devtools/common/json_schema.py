"""Make JSON schemas strict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Keywords with a map of names, not of keywords, to schemas.
NAMED_SCHEMAS = ("properties", "patternProperties", "$defs")


def forbid_unknown_properties(schema: Any, drop: Callable[[str], bool]) -> Any:
    """Return a copy of `schema` in which objects with properties refuse other properties, unless
    they set `additionalProperties`.

    The copy leaves out keywords for which `drop` is true. It also leaves out everything beside a
    `$ref`, which JSON Schema draft 7 ignores.
    """
    if isinstance(schema, list):
        return [forbid_unknown_properties(item, drop) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    strict: dict[str, Any] = {}
    for key, value in schema.items():
        if key in NAMED_SCHEMAS:
            strict[key] = {
                name: forbid_unknown_properties(child, drop) for name, child in value.items()
            }
        elif not drop(key):
            strict[key] = forbid_unknown_properties(value, drop)
    if "properties" in schema:
        strict.setdefault("additionalProperties", False)
    return strict
