"""Run every static check of the repository and show what those print that fail.

As root with apt-get, this first installs the Debian package shellcheck unless it is there.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devtools.common.apt import ensure_program
from devtools.common.cache import cache_dir
from devtools.common.errors import DevtoolsError
from devtools.common.repository import ROOT
from devtools.common.ui import show_error
from devtools.toolchain.tools import tool

# The chart has no default image: lint it with values that name one.
LINTED = ("charts/horovod", "--values", "charts/horovod/ci/default-values.yaml")
# The shell scripts of this repository, without those of other projects that tests migrate.
SHELL = (
    ".ci/run",
    *(
        str(file)
        for folder in ("charts", "images")
        for file in sorted(Path(ROOT, folder).rglob("*.sh"))
    ),
)


def checks_in_python() -> dict[str, list[str]]:
    """Return the command line of each check that needs Python alone, by its name.

    .pre-commit-config.yaml has the same checks.
    """
    python = sys.executable
    # mypy compares the content of modules, so it can reuse the results of an earlier clone at the
    # same path. Checkouts at other paths have different modules at the same time.
    place = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
    cache = cache_dir() / "mypy" / place
    return {
        "ruff": [python, "-m", "ruff", "check", "--quiet", "."],
        "ruff format": [python, "-m", "ruff", "format", "--check", "--quiet", "."],
        "style": [python, "-m", "devtools.checks.style"],
        "messages": [python, "-m", "devtools.checks.messages"],
        "pages": [python, "-m", "devtools.checks.pages"],
        "templates": [python, "-m", "devtools.checks.templates"],
        "mypy": [python, "-m", "mypy", "--cache-dir", f"{cache}"],
        "import-linter": [str(Path(python).with_name("lint-imports"))],
        "generated files": [python, "-m", "devtools.docs_gen", "--check"],
        "yamllint": [python, "-m", "yamllint", "--strict", "."],
        "codespell": [str(Path(python).with_name("codespell"))],
    }


def checks() -> dict[str, list[str]]:
    """Return the command line of each check by its name.

    Raises DevtoolsError when a program of a check is missing, and cannot be installed or built.
    """
    ensure_program("shellcheck")
    return {
        **checks_in_python(),
        "shellcheck": ["shellcheck", *SHELL],
        # actionlint also checks the commands of the steps with shellcheck.
        "actionlint": [str(tool("actionlint")), "-no-color"],
        "helm lint": [str(tool("helm4")), "lint", "--quiet", "--strict", *LINTED],
    }


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run one check and capture its output, to show it in one piece."""
    return subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )


def main() -> int:
    """Run all checks, two at a time. Return 1 when one fails, or its program is missing."""
    try:
        commands = checks()
    except DevtoolsError as error:
        show_error(error)
        return 1
    failed = []
    with ThreadPoolExecutor(2) as pool:
        for name, done in zip(commands, pool.map(run, commands.values()), strict=True):
            if done.returncode != 0:
                sys.stdout.write(done.stdout)
                failed.append(name)
    if failed:
        print(f"lint: {', '.join(failed)} failed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
