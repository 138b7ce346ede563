"""Write the links of docs/threat-model.md to the tests of its promises.

A test that guards a promise has the marker `promise` with a text that names it. The page links this
text to the test. Write [the text](../tests/): `make generate` adds the file, and renews it when the
test has moved.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from devtools.common.repository import DOCS, ROOT

PAGE = DOCS / "threat-model.md"
_LINK = re.compile(r"\[([^\[\]]+)\]\(\.\./tests/[^()]*\)")


class Promise(NamedTuple):
    """A promise, and the test that guards it."""

    text: str
    file: Path
    test: str


def find_promises() -> Iterator[Promise]:
    """Yield the promises of all tests that have the marker, with a text of one string."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        source = file.read_text("utf-8")
        if "mark.promise(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                for mark in node.decorator_list:
                    if (
                        isinstance(mark, ast.Call)
                        and ast.unparse(mark.func) == "pytest.mark.promise"
                    ):
                        yield Promise(ast.literal_eval(mark.args[0]), file, node.name)


def find_linked(text: str) -> set[str]:
    """Return the promises that a page or a part of one links."""
    return {*_LINK.findall(text)}


def generated_texts() -> dict[Path, str]:
    """Return the page with the places of the tests.

    Exits with a message for a promise without exactly one test, and for one that the page does not
    link.
    """
    promises: dict[str, Promise] = {}
    for promise in find_promises():
        if promise.text in promises:
            sys.exit(
                f"{promise.file}: {promise.test}: another test has the promise {promise.text!r}"
            )
        promises[promise.text] = promise
    page = PAGE.read_text("utf-8")
    for text in sorted(find_linked(page).symmetric_difference(promises)):
        lacking = f"{PAGE} does not link it" if text in promises else "no test has it"
        sys.exit(f"promise {text!r}: {lacking}")

    def link(mark: re.Match[str]) -> str:
        return f"[{mark[1]}]({os.path.relpath(promises[mark[1]].file, PAGE.parent)})"

    return {PAGE: _LINK.sub(link, page)}
