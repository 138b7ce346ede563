"""The pages about specs are true: their examples run, and their schema accepts right specs."""

from __future__ import annotations

import contextlib
import io
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from jsonschema_rs import Draft7Validator
from ruamel.yaml import YAML

from devtools.common.markdown import code_blocks
from devtools.common.repository import DOCS
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from hvdchart.spec.values_schema import values_schema
from hvdchart.values.check_values import checked_values
from tests.support.strategies import specs

# With what a page shows of a spec, it is a whole one.
REST = {
    "apiVersion": "hvdchart/v1",
    "name": "a",
    "image": {"repository": "a"},
    "nodes": [{"name": "n", "count": 2, "coresPerSocket": 4, "memory": "8Gi"}],
    "train": {"command": ["a"]},
}


SPEC_SCHEMA = DOCS / "spec.schema.json"
PAGES = (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md")))


@cache
def documents(page: Path) -> list[dict[str, Any]]:
    """Each document in the YAML blocks of a page."""
    streams = (YAML(typ="safe", pure=True).load_all(text) for text in code_blocks(page, "yaml"))
    return [document for stream in streams for document in stream if isinstance(document, dict)]


def test_page_about_python_prints_what_its_code_prints() -> None:
    """Each block of Python prints the block of text after it."""
    page = (DOCS / "python.md").read_text().partition("## Plan in Python")[2]
    page = page.partition("## All exports")[0]
    blocks = re.findall(r"```(python|text)\n(.*?)```", page, re.DOTALL)
    scope: dict[str, Any] = {}
    printed = ""
    compared = 0
    for kind, block in blocks:
        if kind == "python":
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                exec(compile(block, "docs/python.md", "exec"), scope)  # noqa: S102
            printed = stream.getvalue()
        else:
            assert printed == block
            compared += 1
    assert compared == 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_specs_of_pages_can_be_deployed(page: Path) -> None:
    for document in documents(page):
        if document.get("apiVersion") == REST["apiVersion"]:
            assert checked_values(make_plan(parse_spec(json.dumps(document), page.name)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_values_of_pages_are_those_of_the_chart(page: Path) -> None:
    """Or a part of a spec. A key that the chart has no more would be refused."""
    validator = Draft7Validator(values_schema())
    for document in documents(page):
        if "apiVersion" not in document and not validator.is_valid(document):
            parse_spec(json.dumps({**REST, **document}), page.name)


@pytest.mark.parametrize("schema", [values_schema(), json.loads(SPEC_SCHEMA.read_text())])
def test_schema_is_valid_by_its_metaschema(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema_rs.meta.validate(schema)


@pytest.mark.fuzz
@given(specs())
def test_spec_schema_accepts_right_specs(spec: dict[str, Any]) -> None:
    Draft7Validator(json.loads(SPEC_SCHEMA.read_text())).validate(spec)
