"""Write the list of pages in docs/README.md from the navigation of the site in mkdocs.yaml.

The navigation is the only source of the list. docs/README.md shows the title of each page.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from devtools.common.repository import ROOT
from devtools.docs_gen.generated import replace_sections

SITE = "mkdocs.yaml"
DOCS = "docs"
INDEX = "README.md"


@dataclass(frozen=True)
class Entry:
    """A page in the navigation: the headings above it, and its path in the site."""

    headings: tuple[str, ...]
    place: str
    # Replaces the page's own title.
    title: str = ""

    def file(self, root: Path) -> Path:
        """Return the file of the page: in docs/, or at the same path in the repository."""
        inside = root / DOCS / self.place
        return inside if inside.is_file() else root / self.place

    def link(self, root: Path) -> str:
        """Return the link to the page from another one in docs/."""
        return self.place if self.file(root).is_relative_to(root / DOCS) else f"../{self.place}"


def entries(root: Path) -> list[Entry]:
    """Return the pages of the navigation in their order. A folder stands for all pages in it."""
    # This reader keeps the tags of MkDocs, which are not standard YAML, unchanged.
    settings = YAML().load((root / SITE).read_text("utf-8"))
    return [*_entries(settings["nav"], (), root)]


def _entries(node: Any, headings: tuple[str, ...], root: Path) -> Iterator[Entry]:
    if isinstance(node, str):
        pages = sorted((root / DOCS / node).glob("*.md")) if node.endswith("/") else []
        yield from (Entry(headings, f"{node}{page.name}") for page in pages)
        if not pages:
            yield Entry(headings, node)
    elif isinstance(node, dict):
        for title, below in node.items():
            if isinstance(below, str) and not below.endswith("/"):
                yield Entry(headings, below, title)
            else:
                yield from _entries(below, (*headings, title), root)
    else:
        for item in node:
            yield from _entries(item, headings, root)


def problems(root: Path) -> Iterator[str]:
    """Yield each problem of the navigation: pages in no list, and entries without a page."""
    listed = entries(root)
    for entry in listed:
        if not entry.file(root).is_file():
            yield f"{SITE}: nav has {entry.place}, which is no page: remove it"
    for place, number in Counter(entry.place for entry in listed).items():
        if number > 1:
            yield f"{SITE}: nav has {place} {number} times: keep one"
    files = {entry.file(root) for entry in listed}
    for page in sorted((root / DOCS).rglob("*.md")):
        if page not in files:
            yield f"{page.relative_to(root)}: no entry of nav in {SITE} has this page: add one"


def title_of(page: Path) -> str:
    """Return the title of a page."""
    return page.read_text("utf-8").partition("\n")[0].removeprefix("# ")


def index(root: Path) -> str:
    """Return the titles of the pages below each heading."""
    parts = []
    shown: tuple[str, ...] = ()
    for headings, group in groupby(entries(root), lambda entry: entry.headings):
        for level, heading in enumerate(headings):
            if headings[: level + 1] != shown[: level + 1]:
                parts.append(f"{'#' * (level + 2)} {heading}")
        shown = headings
        parts.append(_shown(root, [entry for entry in group if entry.place != INDEX]))
    return "\n".join(f"\n{part}" for part in parts) + "\n"


def _shown(root: Path, pages: list[Entry]) -> str:
    return "\n".join(
        f"- [{entry.title or title_of(entry.file(root))}]({entry.link(root)})" for entry in pages
    )


def generated_texts() -> dict[Path, str]:
    """Return the text of docs/README.md. Exits with a message when the navigation and the pages
    differ.
    """
    if wrong := [*problems(ROOT)]:
        sys.exit("\n".join(wrong))
    page = ROOT / DOCS / INDEX
    return {page: replace_sections(page, {"list of pages": index(ROOT)})}
