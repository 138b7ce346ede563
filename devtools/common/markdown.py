"""Pages in Markdown, parsed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

# The length at which pages are wrapped.
MAX_PAGE_LINE_CHARACTERS = 100


@cache
def parse_markdown(text: str) -> list[Token]:
    """Return the tokens of a page, including those inside paragraphs, which get their lines."""
    parser = MarkdownIt("commonmark").enable("table")
    flat: list[Token] = []
    for token in parser.parse(text):
        children = token.children or []
        for child in children:
            child.map = token.map
        flat += [token, *children]
    return flat


def code_blocks(page: Path, language: str = "") -> Iterator[str]:
    """Yield the code blocks of a page in this language, or in any one and in none."""
    for token in parse_markdown(page.read_text("utf-8")):
        if token.type in ("fence", "code_block") and language in ("", token.info):
            yield token.content


def command_lines(block: str) -> list[str]:
    """Return the lines of a code block, each with those in which it is continued."""
    joined = block.replace("\\\n", " ")
    return [line.strip().removeprefix("$ ") for line in joined.splitlines()]
