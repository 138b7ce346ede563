"""Builds the site of the documentation: `make docs`.

MkDocs has an environment of its own (requirements/docs.txt), because it needs other versions of
some packages than the rest. A broken link, an anchor that does not exist or a page without a place
in the navigation ends with status 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from devtools import bootstrap

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements" / "docs.txt"
SITE = ROOT / "build" / "site"


def build(site: Path) -> subprocess.CompletedProcess[str]:
    """Builds the site into a folder, and first the environment of its packages if it is missing.
    The result has what MkDocs says.

    With --quiet, MkDocs would not count what it does not print, and --strict would pass.
    """
    environment = bootstrap.environment_dir(LOCK)
    bootstrap.ensure(environment, LOCK)
    command = [str(environment / "bin" / "python"), "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(
        [*command, "--site-dir", str(site)],
        cwd=ROOT,
        # The theme's authors print an advertisement otherwise.
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> int:
    done = build(SITE)
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        return done.returncode
    print(SITE / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
