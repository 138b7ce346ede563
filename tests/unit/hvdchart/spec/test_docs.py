"""The pages about specs are true: their examples run."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import pytest

from devtools.docs_gen.spec_docs import DOCS
from hvdchart.spec.load import parse_spec


def test_library_page_prints_what_its_code_prints() -> None:
    """Each block of Python prints the block of text after it."""
    page = (DOCS / "library.md").read_text().partition("## All exports")[0]
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
    assert compared == 6


@pytest.mark.parametrize(("page", "nodes"), [("spec.md", 16), ("pytorch.md", 4)])
def test_first_example_of_page_is_a_spec(page: str, nodes: int) -> None:
    example = re.search(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert example
    assert parse_spec(example[1].encode()).nodes[0].count == nodes
