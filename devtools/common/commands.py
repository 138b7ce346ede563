"""Run other programs: return or log their output, and raise their failure as an error."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from devtools.common.errors import DevtoolsError
from devtools.common.ui import last_lines

# The number of words of a command line that an error message shows.
SHOWN_WORDS = 8


def read_output(
    command: Sequence[str],
    *,
    remedy: str,
    input: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run the command and return its standard output. Raises DevtoolsError with its errors."""
    done = subprocess.run(
        command, env=environment, input=input, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise DevtoolsError(f"{_failure(command, done.returncode)}: {done.stderr.strip()}", remedy)
    return done.stdout


def run_logged(
    command: Sequence[str],
    log: Path,
    *,
    remedy: str,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run the command in `folder` and append its output to `log`.

    Raises DevtoolsError, with the end of the log, when the command's exit status is not 0.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as output:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=output, stderr=output, check=False
        )
    if done.returncode != 0:
        raise DevtoolsError(f"{_failure(command, done.returncode)}; {last_lines(log)}", remedy)


def _failure(command: Sequence[str], status: int) -> str:
    more = " ..." if len(command) > SHOWN_WORDS else ""
    return f"`{' '.join(command[:SHOWN_WORDS])}{more}` failed (status {status})"
