"""The page of a run in a real browser without a window, where the machine has Debian's Chromium."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
# Milliseconds of the page's virtual time, and seconds of real time.
VIRTUAL_TIME_MILLISECONDS = 3000
RUN_TIMEOUT_SECONDS = 100
OPTIONS = (
    "--headless",
    # Chromium runs as root in containers.
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    f"--virtual-time-budget={VIRTUAL_TIME_MILLISECONDS}",
    f"--timeout={2 * VIRTUAL_TIME_MILLISECONDS}",
)
needs_browser = pytest.mark.skipif(
    PROGRAM is None, reason="no program chromium is on PATH: apt-get install chromium"
)


def document_of(address: str, profile: Path, *options: str) -> str:
    """The page as its scripts have made it, as HTML. The folder `profile` gets the settings."""
    assert PROGRAM is not None
    command = [PROGRAM, *OPTIONS, f"--user-data-dir={profile}", "--dump-dom", *options, address]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, check=True
    ).stdout


def main_of(document: str) -> str:
    """What the scripts of a page have drawn of a run, which has a row for each rank."""
    main = document[document.index("<main") : document.index("</main>")]
    assert "<td" in main, "the page is empty"
    return main
