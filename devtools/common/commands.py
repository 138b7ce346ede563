"""Running other programs: their output as a result or in a log, their failure as an error."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from devtools.common.errors import DevtoolsError
from devtools.common.ui import tail

# What an error message shows of a command line.
SHOWN_WORDS = 8


def read_output(
    command: Sequence[str],
    *,
    remedy: str,
    input: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Runs the command; returns its standard output. Raises DevtoolsError with its errors."""
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
    """Runs the command in `folder` and appends all that it prints to `log`.

    Raises DevtoolsError, with the end of the log, when the command's exit status is not 0.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as output:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=output, stderr=output, check=False
        )
    if done.returncode != 0:
        raise DevtoolsError(f"{_failure(command, done.returncode)}; {tail(log)}", remedy)


def _failure(command: Sequence[str], status: int) -> str:
    more = " ..." if len(command) > SHOWN_WORDS else ""
    return f"`{' '.join(command[:SHOWN_WORDS])}{more}` failed (status {status})"
