"""A real browser without a window: Debian's Chromium."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
# Milliseconds of the page's own time, and seconds of this machine's.
BUDGET = 3000
WITHIN = 100
OPTIONS = (
    "--headless",
    # It runs as root in containers.
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    f"--virtual-time-budget={BUDGET}",
    f"--timeout={2 * BUDGET}",
)
needs_browser = pytest.mark.skipif(
    PROGRAM is None, reason="no program chromium is on PATH: apt-get install chromium"
)


def run(address: str, *options: str, profile: Path) -> subprocess.CompletedProcess[str]:
    """Open a page in a browser of its own, whose settings are in a folder."""
    assert PROGRAM
    command = [PROGRAM, *OPTIONS, f"--user-data-dir={profile}", *options, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, check=True)


def document_of(address: str, profile: Path) -> str:
    """The page as its scripts have made it, as HTML."""
    return run(address, "--dump-dom", profile=profile).stdout


def take_picture(
    address: str, file: Path, size: tuple[int, int], profile: Path, *, is_dark: bool = False
) -> None:
    """A picture of a page as PNG, in its light or its dark colours."""
    width, height = size
    scheme = 0 if is_dark else 1
    options = (
        f"--window-size={width},{height}",
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--screenshot={file}",
    )
    run(address, *options, profile=profile)
