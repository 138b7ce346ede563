"""Text that YAML could read as something else arrives as text, and null renders or is refused."""

from __future__ import annotations

import functools
import json
import operator
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import pytest
import yaml

from devtools.common.repository import CHART
from hvdchart.values.merge import merge_values
from tests.chart.cases import EVERY_POD
from tests.chart.render import Values, helm_template, nested, parse_manifests

AMBIGUOUS = ["no", "123", "1e3", "0x10", "~", "true", "1_000", "2001-01-01"]
MARK = "zzmark"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
# What the chart needs to render everything into which text can go.
NEEDED: Values = {
    **EVERY_POD,
    "metrics": {"enabled": True, "podMonitor": True},
    "podSecurityContext": {"runAsUser": 0, "runAsNonRoot": False},
    "workerGroups": [{"name": "a"}],
    # Another one than the workers'.
    "agent": {"masterSecret": "of-the-master"},
}
# Values that would change which objects there are or their names, and text that must have a form.
FIXED = {"extraObjects", "fullnameOverride", "nameOverride", "logDir", "path", "launch"}
FIXED |= {"code", "name", "queueName"}


def fill(node: dict[str, Any], text: str, other: str) -> Any:
    """Return a value for a part of the schema with `text` in every string that may be either."""
    if "$ref" in node:
        node = SCHEMA["definitions"][node["$ref"].rsplit("/", 1)[1]]
    if "enum" in node or "not" in node:
        return None
    kinds = node.get("type", "object")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "string" in kinds:
        pattern = re.compile(node.get("pattern", ""))
        return text if pattern.search(text) and pattern.search(other) else None
    if "array" in kinds:
        item = fill(node.get("items", {}), text, other)
        return None if item is None else [item]
    if "object" not in kinds:
        return None
    properties = node.get("properties")
    if properties is None:
        # A map of strings, or an object of Kubernetes.
        every = node.get("additionalProperties")
        value = fill(every, text, other) if isinstance(every, dict) else text
        return None if value is None else {"key": value}
    values = {
        name: value
        for name, child in properties.items()
        if name not in FIXED and (value := fill(child, text, other)) is not None
    }
    if {"name", "value", "valueFrom"} <= properties.keys():
        values = {"name": "VARIABLE", "value": text}
    return values or None


def normalized(manifests: Any) -> Any:
    """Return the manifests without what differs between two renders."""
    text = json.dumps([item for item in manifests if item["kind"] != "Secret"], default=str)
    return json.loads(re.sub(r'(?<=[-"\\])[0-9a-f]{8,16}(?=[\\"])', "HASH", text))


def with_text(marked: Any, text: str) -> Any:
    """Return marked manifests with the text in place of the mark, as text everywhere."""
    return json.loads(json.dumps(marked).replace(MARK, text))


@functools.cache
def rendered(text: str, other: str, gang: str) -> Any:
    """Return the manifests with the text in every string of the schema that may be either."""
    values = merge_values(fill(SCHEMA, text, other), {**NEEDED, "gang": gang})
    done = helm_template(values)
    assert done.returncode == 0, done.stderr
    return normalized(parse_manifests(done.stdout))


# Volcano's PodGroup has the queue; otherwise the queue is a label.
@pytest.mark.parametrize(("text", "gang"), [*((text, "") for text in AMBIGUOUS), ("no", "Volcano")])
def test_ambiguous_text_stays_text(text: str, gang: str) -> None:
    marked = rendered(MARK, text, gang)
    assert json.dumps(marked).count(MARK) > 40, "the text is in few places"
    assert rendered(text, MARK, gang) == with_text(marked, text)


def paths(node: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return the path of every key of values.yaml."""
    for key, value in node.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from paths(value, (*above, key))


DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


def batches() -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Yield the keys with the Helm that passes their null on: of each top key one at a time.

    Keys of different top keys seldom decide whether the others are used.
    """
    by_helm = defaultdict(list)
    for path in paths(DEFAULTS):
        default = functools.reduce(operator.getitem, path, DEFAULTS)
        # Helm deletes a key that is null; but where the default is null too, Helm 3 keeps the null.
        by_helm["helm3" if default is None else "helm4", path[0]].append(path)
    for helm in ("helm3", "helm4"):
        columns = [keys for (version, _), keys in by_helm.items() if version == helm]
        for row in zip_longest(*columns):
            yield helm, [path for path in row if path]


def null(keys: list[tuple[str, ...]]) -> Values:
    """Return values in which these keys are null."""
    values: Values = {}
    for path in keys:
        values = merge_values(values, nested(path, None))
    return values


def refused_keys(helm: str, keys: list[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """What Helm says of each key that may not be null: half of the keys are tried at a time."""
    done = helm_template(null(keys), helm=helm)
    if not done.returncode:
        return {}
    if len(keys) == 1:
        return {keys[0]: done.stderr}
    middle = len(keys) // 2
    return {**refused_keys(helm, keys[:middle]), **refused_keys(helm, keys[middle:])}


@pytest.mark.parametrize(("helm", "keys"), list(batches()))
def test_null_for_any_key_renders_or_names_the_key(helm: str, keys: list[tuple[str, ...]]) -> None:
    said = refused_keys(helm, keys)
    unnamed = [key for key, text in said.items() if key[-1] not in text or "nil pointer" in text]
    assert unnamed == []
