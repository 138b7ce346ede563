"""docs/security.md names a test for each promise, and the tests exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
LINK = re.compile(r"\[`(test_\w+)`\]\(([^)]+\.py)\)")


def read_promises() -> list[str]:
    """Return the list items and the rows of tables, each as one line."""
    items = re.findall(r"^- .*(?:\n  .*)*", PAGE.read_text(), re.MULTILINE)
    tables = re.findall(r"^\|(?: -+ \|)+\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    return [" ".join(item.split()) for item in items] + "".join(tables).splitlines()


@cache
def read_tests(file: Path) -> set[str]:
    """Return the names of a file's tests."""
    nodes = ast.parse(file.read_text()).body
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_page_has_promises_in_lists_and_tables() -> None:
    starts = {promise[0] for promise in read_promises()}
    assert starts == {"-", "|"}
    assert len(read_promises()) > 30


@pytest.mark.parametrize("promise", read_promises())
def test_promise_names_a_test_that_exists(promise: str) -> None:
    links = LINK.findall(promise)
    assert links, "the line names no test that guards it"
    for name, target in links:
        assert name in read_tests(PAGE.parent / target), f"{target} has no test {name}"
