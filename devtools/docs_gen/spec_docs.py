"""Write docs/spec.schema.json and the tables of docs/spec.md from the spec's dataclasses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from devtools.common.repository import DOCS
from devtools.docs_gen.generated import markdown_table, replace_sections
from hvdchart.spec.fields import ObjectOf
from hvdchart.spec.model import Spec, json_schema
from hvdchart.spec.yaml_tree import Plain


def tables() -> str:
    """Return the keys of a spec as Markdown: one table for each map with known keys."""
    return "\n".join(_tables("", ObjectOf(Spec).schema(), {}))


def _tables(path: str, schema: dict[str, Any], shown: dict[str, str]) -> Iterator[str]:
    """Yield a table for the map at `path`, and one for each map in it.

    `shown` has the place of each table, by its keys.
    """
    yield f"### {'`' + path + '`' if path else 'Top level'}\n"
    keys = json.dumps(schema["properties"])
    if keys in shown:
        yield f"The keys are those of `{shown[keys]}`.\n"
        return
    shown[keys] = path
    rows = []
    nested_tables = []
    for name, child in schema["properties"].items():
        default = "required" if name in schema.get("required", ()) else _default(child)
        rows.append((f"`{name}`", _kind(child), default, child["description"]))
        nested = child
        place = f"{path}.{name}" if path else name
        if child.get("type") == "array":
            nested = child["items"]
            place = f"{place}[]"
        elif isinstance(child.get("additionalProperties"), dict):
            nested = child["additionalProperties"]
            place = f"{place}.NAME"
        if "properties" in nested:
            nested_tables.append((place, nested))
    yield f"{markdown_table(('key', 'type', 'default', 'meaning'), rows)}\n"
    for place, nested in nested_tables:
        yield from _tables(place, nested, shown)


def _default(schema: dict[str, Plain]) -> str:
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{word}`" for word in schema["enum"])
    kind = schema.get("type", "")
    if kind == "integer":
        return f"{schema['minimum']} to {schema['maximum']}"
    if kind == "array":
        return f"list of {_kind(schema['items'])}"
    if kind == "object":
        return "map"
    if isinstance(kind, list):
        return "quantity" if "object" not in kind else "text, number or map"
    return {"string": "text", "boolean": "true or false"}.get(str(kind), str(kind))


def generated_texts() -> dict[Path, str]:
    page = DOCS / "spec.md"
    return {
        DOCS / "spec.schema.json": json_schema(),
        page: replace_sections(page, {"tables": f"\n{tables()}"}),
    }
