"""A real browser without a window: Debian's Chromium."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from devtools.common.errors import DevtoolsError

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


def run(address: str, *options: str, profile: Path) -> subprocess.CompletedProcess[str]:
    """Open a page in a separate browser with its settings in the folder `profile`.

    Raises DevtoolsError where none is installed, subprocess.CalledProcessError where it fails, and
    subprocess.TimeoutExpired after RUN_TIMEOUT_SECONDS.
    """
    if PROGRAM is None:
        raise DevtoolsError("no program chromium is on PATH", "apt-get install chromium")
    command = [PROGRAM, *OPTIONS, f"--user-data-dir={profile}", *options, address]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, check=True
    )
