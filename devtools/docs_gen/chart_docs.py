"""Write the chart's values.yaml, values.schema.json and README table from values.source.yaml.

`python -m devtools.docs_gen.chart_docs` writes them, `--check` exits 1 and names each file that
differs.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

CHART = Path(__file__).resolve().parents[2] / "charts" / "horovod"
SOURCE = CHART / "values.source.yaml"
TABLE_START = "<!-- values table: generated from values.source.yaml by `make generate` -->"
TABLE_END = "<!-- end of the values table -->"
Node = dict[str, Any]


def load_source() -> Node:
    """The source document as plain dicts."""
    source: Node = YAML(typ="safe").load(SOURCE.read_text())
    return source


def schema(source: Node) -> str:
    """The JSON schema that Helm checks values against: the source, closed and without defaults."""
    described = {key: value for key, value in source.items() if key != "retired"}
    document = {"$schema": "http://json-schema.org/draft-07/schema#", **_closed(described)}
    for key in source["retired"]:
        *parents, name = key.split(".")
        node = document
        for parent in parents:
            node = node["properties"][parent]
        # Anything goes here: the template that refuses it says what to use instead.
        node["properties"][name] = {}
    # Draft 7 calls it definitions; Helm 3 validates draft 7.
    document["definitions"] = document.pop("$defs")
    text = json.dumps(document, indent=1, sort_keys=False)
    return text.replace("#/$defs/", "#/definitions/") + "\n"


def _closed(node: Any) -> Any:
    """Refuse unknown keys wherever keys are listed, and drop defaults: they live in values.yaml.

    Draft 7 ignores whatever stands beside a $ref, so descriptions there go too.
    """
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return {"$ref": node["$ref"]}
    result: Node = {}
    for key, value in node.items():
        if key in ("properties", "$defs"):
            result[key] = {name: _closed(child) for name, child in value.items()}
        elif key != "default":
            result[key] = _closed(value)
    if "properties" in node:
        result.setdefault("additionalProperties", False)
    return result


def values(source: Node) -> str:
    """values.yaml: each default with its description as the comment."""
    head = "# Generated from values.source.yaml by `make generate`: edit that file.\n"
    return head + "".join(_value_lines(source, 0))


def _value_lines(node: Node, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for key, child in node["properties"].items():
        if "default" in child:
            yield f"{indent}# {child['description']}\n"
            yield f"{indent}{key}: {_inline(child['default'])}\n"
        elif "properties" in child:
            yield f"{indent}# {child['description']}\n"
            yield f"{indent}{key}:\n"
            yield from _value_lines(child, depth + 1)


def _inline(value: Any) -> str:
    """One YAML flow value on one line."""
    if value is None:
        return "null"
    stream = io.StringIO()
    yaml = YAML(typ="safe")
    yaml.default_flow_style = True
    yaml.width = 10_000
    yaml.dump(value, stream)
    return stream.getvalue().replace("\n...", "").strip().replace("''", '""')


def retired(source: Node) -> str:
    """The template that knows the keys of older charts."""
    listed = json.dumps(source["retired"], indent=2)
    note = "{{/* Generated from values.source.yaml by `make generate`: edit that file. */}}\n"
    return f'{note}{{{{- define "horovod.retired" -}}}}\n{listed}\n{{{{- end }}}}\n'


def table(source: Node) -> str:
    """The README's table of keys."""
    rows = ["| Key | Type | Default | What it does |", "| --- | --- | --- | --- |"]
    rows += [
        f"| `{key}` | {_type(node)} | {_default(node)} | {_cell(node['description'])} |"
        for key, node in _leaves(source, "")
    ]
    return "\n".join(rows)


def _leaves(node: Node, prefix: str) -> Iterator[tuple[str, Node]]:
    for key, child in node["properties"].items():
        if "properties" in child and "default" not in child:
            yield from _leaves(child, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", child


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _type(node: Node) -> str:
    if "$ref" in node:
        return {
            "objects": "list of objects",
            "env": "list of env entries",
            "stringMap": "map of strings",
        }.get(node["$ref"].rsplit("/", 1)[1], "object")
    if "enum" in node:
        return ", ".join(f"`{choice}`" for choice in node["enum"])
    kind = node["type"]
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _default(node: Node) -> str:
    return f"`{_inline(node['default'])}`" if "default" in node else ""


def readme(source: Node, current: str) -> str:
    """The README with its table replaced; the rest of it is written by hand."""
    before, _, rest = current.partition(TABLE_START)
    _, _, after = rest.partition(TABLE_END)
    if not rest or TABLE_END not in current:
        sys.exit(f"chart_docs: {CHART / 'README.md'}: the table's marker lines are missing")
    return f"{before}{TABLE_START}\n{table(source)}\n{TABLE_END}{after}"


def main(arguments: list[str]) -> int:
    """Write the files, or compare them with --check."""
    source = load_source()
    wanted = {
        CHART / "values.yaml": values(source),
        CHART / "values.schema.json": schema(source),
        CHART / "templates" / "_retired.tpl": retired(source),
        CHART / "README.md": readme(source, (CHART / "README.md").read_text()),
    }
    differing = [
        file for file, text in wanted.items() if not file.exists() or file.read_text() != text
    ]
    if arguments == ["--check"]:
        for file in differing:
            print(f"{file}: differs from values.source.yaml: run `make generate`", file=sys.stderr)
        return 1 if differing else 0
    for file in differing:
        file.write_text(wanted[file])
        print(f"wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
