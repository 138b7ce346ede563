"""The pages about specs are what the code does: examples run, published files are current."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft7Validator
from ruamel.yaml import YAML

from devtools.docs_gen.spec_docs import DOCS, generated_texts
from hvdchart.spec.load import parse_spec
from hvdchart.spec.schema import json_schema

VALUES = DOCS.parent / "values"


def test_the_worked_example() -> None:
    """Each block of Python prints the block of text behind it."""
    page = (DOCS / "library.md").read_text()
    blocks = re.findall(r"```(python|text)\n(.*?)```", page, re.DOTALL)
    scope: dict[str, Any] = {}
    printed, compared = "", 0
    for kind, block in blocks:
        if kind == "python":
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                exec(compile(block, "docs/library.md", "exec"), scope)  # noqa: S102
            printed = stream.getvalue()
        else:
            assert printed == block
            compared += 1
    assert compared == 4


@pytest.mark.parametrize(("page", "nodes"), [("spec.md", 16), ("pytorch.md", 4)])
def test_the_example_of_a_page_is_a_spec(page: str, nodes: int) -> None:
    example = re.search(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert example
    assert parse_spec(example[1].encode()).nodes[0].count == nodes


def test_generated_docs_of_the_spec_are_current() -> None:
    for path, text in generated_texts().items():
        assert path.read_text() == text, "run `make generate`"


@pytest.mark.parametrize("spec", sorted(VALUES.glob("*.spec.yaml")), ids=lambda path: path.name)
def test_the_published_schema_takes_every_case(spec: Path) -> None:
    schema = json.loads(json_schema())
    document = YAML(typ="safe").load(spec.read_text())
    assert list(Draft7Validator(schema).iter_errors(document)) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("sockets", 0), ("sockets", "2"), ("socket", 2), ("memory", []), ("name", "X"), ("gpus", 65)],
)
def test_the_published_schema_refuses_what_we_refuse(key: str, value: Any) -> None:
    group = {"name": "a", "count": 1, "coresPerSocket": 2, key: value}
    spec = {"apiVersion": "hvdchart/v1", "name": "x", "nodes": [group], "train": {"command": ["a"]}}
    assert not Draft7Validator(json.loads(json_schema())).is_valid(spec)
