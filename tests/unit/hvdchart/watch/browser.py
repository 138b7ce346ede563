"""The page of a run in a real browser, where the machine has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.common.browser import PROGRAM, run

needs_browser = pytest.mark.skipif(
    PROGRAM is None, reason="no program chromium is on PATH: apt-get install chromium"
)


def document_of(address: str, profile: Path, *options: str) -> str:
    """The page as its scripts have made it, as HTML."""
    return run(address, "--dump-dom", *options, profile=profile).stdout


def drawn(document: str) -> str:
    """What the scripts of a page have drawn of a run, which has a row for each rank."""
    main = document[document.index("<main") : document.index("</main>")]
    assert "<td" in main, "the page is empty"
    return main
