"""The site of the documentation: MkDocs finds no broken link, and every page has its place."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from devtools.docs_gen.build_site import ROOT, build, environment

pytestmark = pytest.mark.slow

PAGES = [
    *ROOT.glob("*.md"),
    *(p for name in ("docs", "charts", "images") for p in (ROOT / name).rglob("*.md")),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, which takes some seconds: all pages are rendered, as `make docs` does."""
    folder = tmp_path_factory.mktemp("site") / "site"
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    places = [path.parent if path.stem == "README" else path.with_suffix("") for path in pages]
    assert [place for place in places if not (site / place / "index.html").is_file()] == []


def test_pages_outside_the_folder_and_linked_files_are_in_the_site(site: Path) -> None:
    values = (site / "charts" / "horovod" / "index.html").read_text("utf-8")
    assert "worker.number" in values
    security = (site / "security" / "index.html").read_text("utf-8")
    assert 'href="../source/tests/chart/test_security.py.txt"' in security
    assert (site / "source" / "tests" / "chart" / "test_security.py.txt").is_file()


def test_site_needs_nothing_from_elsewhere(site: Path) -> None:
    page = (site / "index.html").read_text("utf-8")
    assert '<script src="http' not in page
    assert "fonts.googleapis.com" not in page


def test_pages_have_no_usual_misspelling() -> None:
    program = environment() / "bin" / "codespell"
    # A page shows what hvdchart says about a misspelt key.
    done = subprocess.run(
        [str(program), "--ignore-words-list=nubmer", *map(str, PAGES)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
