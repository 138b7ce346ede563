"""The pages of the documentation, parsed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token


@cache
def tokens(page: Path) -> list[Token]:
    """Return the tokens of a page, including those inside paragraphs."""
    parser = MarkdownIt("commonmark").enable("table")
    flat: list[Token] = []
    for token in parser.parse(page.read_text("utf-8")):
        flat += [token, *(token.children or ())]
    return flat


def blocks(page: Path, language: str) -> Iterator[str]:
    """Yield the code blocks of a page in this language."""
    fences = (token for token in tokens(page) if token.type == "fence")
    yield from (token.content for token in fences if token.info == language)
