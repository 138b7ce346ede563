"""Write the chart's values.yaml, schema, generated templates and the table of its README."""

from __future__ import annotations

import io
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from devtools.common.json_schema import forbid_unknown_properties
from devtools.common.repository import CHART
from devtools.docs_gen.generated import markdown_table, replace_sections
from hvd_pods.shared import exit_codes
from hvdchart.chart_files import read_data

SOURCE = CHART / "values.source.yaml"
# The longest line of values.yaml with a description.
MAX_VALUES_LINE_CHARACTERS = 120
# A name of resources.json in a pattern, or of the key itself in its description.
NAME = re.compile(r"\{(\w+)\}")
# The values of `hash` that a key may declare.
HASHES = ("identity", "settings", "none")
# Keywords of the source that the schema lacks.
OF_THIS_FILE = ("default", "effective", "hash", "unhashed")
Node = dict[str, Any]


def load_source() -> Node:
    """Load the source document as plain dicts.

    The result includes the inherited keys of list items, the limits of resources.json, and the
    numbers that descriptions name.
    """
    source: Node = YAML(typ="safe").load(SOURCE.read_text())
    for child in source["properties"].values():
        items = child.get("items", {})
        if "inherits" in items:
            parent = source["properties"][items.pop("inherits")]
            items["properties"] = {**parent["properties"], **items["properties"]}
    for schema in (source, *source["$defs"].values()):
        _fill_in(schema)
    return source


def _fill_in(node: Node) -> None:
    """Replace names of limits, patterns and numbers below `node`. Exit for an unknown limit."""
    resources = read_data("resources.json")
    for name, child in node.get("properties", {}).items():
        _fill_in(child)
        for keyword in ("maximum", "maxLength"):
            limit = child.get(keyword)
            if isinstance(limit, str):
                if limit not in resources:
                    sys.exit(f"{SOURCE}: {name}: `{keyword}`: resources.json has no {limit}")
                child[keyword] = resources[limit]
        if "pattern" in child:
            child["pattern"] = _with_facts(child["pattern"], resources)
        if "effective" in child:
            child["description"] = _with_facts(child["description"], {name: child["effective"]})
    if "items" in node:
        _fill_in(node["items"])


def _with_facts(text: str, facts: Node) -> str:
    """Return the text with each of the facts in the place of its name in braces."""
    return NAME.sub(lambda match: str(facts.get(match[1], match[0])), text)


def render_schema(source: Node) -> str:
    """Return values.schema.json for Helm. It has no defaults: these are in values.yaml."""
    strict = forbid_unknown_properties(source, lambda key: key in OF_THIS_FILE)
    document = {"$schema": "http://json-schema.org/draft-07/schema#", **strict}
    # Helm 3 validates draft 7, which uses the name `definitions` instead of `$defs`.
    document["definitions"] = document.pop("$defs")
    # Helm keeps this text, in base64, in each release: write no spaces.
    text = json.dumps(document, indent=0, separators=(",", ":"))
    return text.replace("#/$defs/", "#/definitions/") + "\n"


def render_values(source: Node) -> str:
    """Return values.yaml: each default, with its description as a comment."""
    head = "# Generated from values.source.yaml by `make generate`: edit that file.\n"
    return head + "".join(_value_lines(source, 0))


def _value_lines(node: Node, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for key, child in node["properties"].items():
        if "default" in child:
            yield _add_description(f"{indent}{key}: {inline(child['default'])}", child)
        elif "properties" in child:
            yield _add_description(f"{indent}{key}:", child)
            yield from _value_lines(child, depth + 1)


def _add_description(line: str, node: Node) -> str:
    """Return the line with the description: behind it where both fit, otherwise above it, each of
    its clauses on a line of its own.
    """
    if len(whole := f"{line}  # {node['description']}") <= MAX_VALUES_LINE_CHARACTERS:
        return f"{whole}\n"
    mark = f"{line[: len(line) - len(line.lstrip())]}# "
    clauses = [
        textwrap.fill(
            clause,
            MAX_VALUES_LINE_CHARACTERS,
            initial_indent=mark,
            subsequent_indent=f"{mark}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for clause in node["description"].split("; ")
    ]
    return "\n".join([*clauses, line, ""])


def inline(value: Any) -> str:
    """Return the value as YAML on one line."""
    if value is None:
        return "null"
    stream = io.StringIO()
    yaml = YAML(typ="safe")
    yaml.default_flow_style = True
    yaml.width = 10_000
    yaml.dump(value, stream)
    return stream.getvalue().replace("\n...", "").strip().replace("''", '""')


def render_template(name: str, data: Any, source: str = SOURCE.name) -> str:
    """Return a template that contains the data of a source as JSON."""
    note = f"{{{{/* Generated from {source} by `make generate`: edit that file. */}}}}\n"
    body = json.dumps(data, indent=2)
    return f'{note}{{{{- define "horovod.{name}" -}}}}\n{body}\n{{{{- end }}}}\n'


def declared_hashes(node: Node, prefix: str = "", above: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted keys with the hash that they declare: ADR 10. A key inherits the
    declaration of its parent.
    """
    for name, child in node["properties"].items():
        declared = child.get("hash", above)
        if _has_keys(child):
            yield from declared_hashes(child, f"{prefix}{name}.", declared)
        else:
            yield f"{prefix}{name}", declared


def needed_defaults(node: Node) -> Node:
    """Return the defaults of the keys that templates need, as nested maps.

    Null keeps its meaning where the type allows it, and it empties an object of Kubernetes.
    """
    needed: Node = {}
    for name, child in node["properties"].items():
        if _has_keys(child):
            needed[name] = needed_defaults(child)
        elif (default := _leaf_default(child)) is not None:
            needed[name] = default
    return needed


def _has_keys(node: Node) -> bool:
    """Return whether a node has keys of the chart, and not an object of Kubernetes."""
    return "properties" in node and not node.get("additionalProperties")


def _leaf_default(node: Node) -> Any:
    """Return the default of a key; that of an object of Kubernetes is empty."""
    is_map = node.get("$ref", "").endswith(("kubernetesObject", "/resources"))
    return {} if node.get("additionalProperties") or is_map else node.get("default")


def effective_numbers(node: Node) -> Node:
    """Return the numbers that the chart uses in the place of a null, as nested maps."""
    numbers: Node = {}
    for name, child in node["properties"].items():
        if "effective" in child:
            numbers[name] = child["effective"]
        elif "properties" in child and (below := effective_numbers(child)):
            numbers[name] = below
    return numbers


def run_keys(source: Node, hashes: Sequence[str]) -> Node:
    """Return the keys that declare one of the hashes, as nested maps; workerGroups has worker's.

    The content of a key is the value that counts as no value: a default that is empty or unhashed,
    or null (ADR 10).
    """
    image = source["$defs"]["image"]
    keys = _hashed_keys(source, hashes, "", image)
    del keys["worker"]
    groups = source["properties"]["workerGroups"]
    return {**keys, "workerGroups": _hashed_keys(groups["items"], hashes, groups["hash"], image)}


def _hashed_keys(node: Node, hashes: Sequence[str], above: str, image: Node) -> Node:
    """Return the keys of a node; `above` is the hash that they inherit.

    A key that overrides keys of the image has the keys of `image`. Their own hashes count only
    where this key is in the hash.
    """
    keys: Node = {}
    for name, child in node["properties"].items():
        declared = child.get("hash", above)
        is_image = child.get("$ref") == "#/$defs/image" and declared in hashes
        if is_image or _has_keys(child):
            if below := _hashed_keys(image if is_image else child, hashes, declared, image):
                keys[name] = below
        elif declared in hashes:
            default = _leaf_default(child)
            keys[name] = None if default and not child.get("unhashed") else default
    return keys


def render_table(source: Node) -> str:
    rows = (
        (f"`{key}`", _type(node), _default(node), node["description"])
        for key, node in _leaves(source, "")
    )
    return markdown_table(("Key", "Type", "Default", "What it does"), rows)


def _leaves(node: Node, prefix: str) -> Iterator[tuple[str, Node]]:
    for key, child in node["properties"].items():
        if "properties" in child and "default" not in child:
            yield from _leaves(child, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", child


def _type(node: Node) -> str:
    if "$ref" in node:
        return {
            "objects": "list of objects",
            "containers": "list of containers",
            "env": "list of env entries",
            "capabilities": "list of strings",
            "stringMap": "map of strings",
        }.get(node["$ref"].rsplit("/", 1)[1], "object")
    if "enum" in node:
        return ", ".join(f"`{inline(choice)}`" for choice in node["enum"])
    kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
    if "array" in kinds:
        lists = f"list of {node['items']['type']}s"
        kinds = [lists if kind == "array" else kind for kind in kinds]
    return " or ".join(kinds)


def _default(node: Node) -> str:
    return f"`{inline(node['default'])}`" if "default" in node else ""


def find_undescribed(node: Node, prefix: str = "") -> Iterator[str]:
    """Yield keys without a description."""
    for name, child in node.get("properties", {}).items():
        key = f"{prefix}{name}"
        if not child.get("description"):
            yield key
        yield from find_undescribed(child, f"{key}.")
        yield from find_undescribed(child.get("items", {}), f"{key}[].")


def find_unnumbered(node: Node, prefix: str = "") -> Iterator[str]:
    """Yield keys with an effective number that their description does not name."""
    for name, child in node["properties"].items():
        key = f"{prefix}{name}"
        if "effective" in child and f"default: {child['effective']}" not in child["description"]:
            yield key
        if "properties" in child:
            yield from find_unnumbered(child, f"{key}.")


def generated_texts() -> dict[Path, str]:
    """Return the texts of generated files.

    Exits where a key has no description, declares no hash, or hides the number that null means.
    """
    source = load_source()
    if keys := [*find_undescribed(source)]:
        sys.exit(f"{SOURCE}: without a description: {', '.join(keys)}")
    if keys := [*find_unnumbered(source)]:
        sys.exit(
            f"{SOURCE}: the description has another default than `effective`: {', '.join(keys)}"
        )
    hashes = dict(declared_hashes(source))
    if keys := [key for key, declared in hashes.items() if declared not in HASHES]:
        sys.exit(f"{SOURCE}: `hash` must be one of {', '.join(HASHES)}: {', '.join(keys)}")
    templates = CHART / "templates"
    readme = CHART / "README.md"
    return {
        CHART / "values.yaml": render_values(source),
        CHART / "values.schema.json": render_schema(source),
        templates / "generated" / "_defaults.tpl": render_template(
            "defaults", needed_defaults(source)
        ),
        templates / "generated" / "_effective.tpl": render_template(
            "effective", effective_numbers(source)
        ),
        templates / "generated" / "_hashes.tpl": render_template(
            "hashes",
            {
                "identity": run_keys(source, ["identity"]),
                "settings": run_keys(source, ["identity", "settings"]),
            },
        ),
        templates / "generated" / "_exit_codes.tpl": render_template(
            "lostMasterCodes",
            sorted(exit_codes.LOST_MASTER),
            "files/hvd_pods/shared/exit_codes.py",
        ),
        readme: replace_sections(readme, {"values table": render_table(source)}),
    }
