"""The problems that the checks find in files, by file and line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from devtools.common.repository import ROOT

# Yields the line and the problem of each place in a text.
Check: TypeAlias = Callable[[str], Iterator[tuple[int, str]]]


def find_files(*patterns: str) -> list[Path]:
    """Return the files of the repository that match, tracked or new, relative to its root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True).stdout
    return [Path(name) for name in names.splitlines() if (ROOT / name).is_file()]


def check_files(check: Check, *patterns: str) -> Iterator[str]:
    """Yield each problem in the files that match. Exits with a message when there are none."""
    files = find_files(*patterns)
    if not files:
        sys.exit(f"no file matches {' '.join(patterns)}: nothing is checked")
    for file in files:
        for number, problem in check((ROOT / file).read_text("utf-8")):
            yield f"{file}:{number}: {problem}"


def print_problems(problems: Iterable[str]) -> int:
    """Print all problems. Return 1 when there is one."""
    exit_code = 0
    for problem in problems:
        print(problem)
        exit_code = 1
    return exit_code
