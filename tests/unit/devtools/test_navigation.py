"""The navigation of the site and the list of pages in docs/README.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.docs_gen import navigation

NAV = """\
theme: !ENV [THEME, material]
nav:
  - Start:
      - README.md
      - first.md
      - The values: chart/README.md
  - For contributors:
      - inside.md
      - Decisions: adr/
"""
PAGES = {
    "docs/README.md": "# All\n",
    "docs/first.md": "# First\n",
    "docs/inside.md": "# Inside\n",
    "docs/adr/0001-a.md": "# 1. A\n\nText.\n",
    "chart/README.md": "# chart\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose navigation has each page once."""
    (tmp_path / "mkdocs.yaml").write_text(NAV)
    for name, text in PAGES.items():
        page = tmp_path / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
    return tmp_path


def test_pages_are_listed_below_the_headings_of_the_navigation(root: Path) -> None:
    assert (
        navigation.index(root)
        == """
## Start

- [First](first.md)
- [The values](../chart/README.md)

## For contributors

- [Inside](inside.md)

### Decisions

- [1. A](adr/0001-a.md)
"""
    )


def test_navigation_with_each_page_once_is_right(root: Path) -> None:
    assert [*navigation.problems(root)] == []


def test_page_in_no_list_is_named(root: Path) -> None:
    (root / "docs" / "lost.md").write_text("# Lost\n")
    (problem,) = navigation.problems(root)
    assert "docs/lost.md" in problem


def test_entry_without_a_page_is_named(root: Path) -> None:
    (root / "docs" / "first.md").unlink()
    (problem,) = navigation.problems(root)
    assert "first.md" in problem


def test_page_in_two_lists_is_named(root: Path) -> None:
    (root / "mkdocs.yaml").write_text(NAV.replace("- inside.md", "- inside.md\n      - first.md"))
    (problem,) = navigation.problems(root)
    assert "first.md" in problem


def test_folder_without_pages_is_named(root: Path) -> None:
    (root / "docs" / "adr" / "0001-a.md").unlink()
    (problem,) = navigation.problems(root)
    assert "adr/" in problem
