"""Build the site of the documentation: `make docs`.

MkDocs has a separate environment (requirements/docs.txt), because it needs different versions of
some packages. A broken link, a missing anchor or a page outside the navigation ends the build with
status 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from devtools import bootstrap
from devtools.common.repository import ROOT

SITE_REQUIREMENTS = ROOT / "requirements" / "docs.txt"
SITE = ROOT / "build" / "site"


def build_site(site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site into a folder. Build the environment of its packages first if it is missing.

    The result includes the output of MkDocs. With --quiet, MkDocs does not count the warnings that
    it does not print, and --strict passes.
    """
    environment = bootstrap.environment_dir(SITE_REQUIREMENTS)
    bootstrap.ensure(environment, SITE_REQUIREMENTS)
    command = [str(environment / "bin" / "python"), "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(
        [*command, "--site-dir", str(site)],
        cwd=ROOT,
        # Without this variable, the theme prints an advertisement of its authors.
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> int:
    done = build_site(SITE)
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        return done.returncode
    print(SITE / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
