"""What several subcommands print: log lines in colours, remarks, and how a run ended."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer

from hvdchart.errors import RunFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hvdchart.run.logs import LogLine
    from hvdchart.run.status import Status

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red")


def say(text: str) -> None:
    """Print a remark to standard error."""
    sys.stderr.write(f"hvdchart: {text}\n")
    sys.stderr.flush()


def print_log(lines: Iterable[LogLine]) -> None:
    """Print each line with its pod, as soon as it comes."""
    colours: dict[str, str] = {}
    # https://no-color.org
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in lines:
        prefix = f"[{line.pod}]"
        if coloured:
            colour = colours.setdefault(line.pod, _COLOURS[len(colours) % len(_COLOURS)])
            prefix = typer.style(prefix, fg=colour)
        sys.stdout.write(f"{prefix} {line.text}\n")
        sys.stdout.flush()


def raise_unless_finished(status: Status) -> None:
    """Raise RunFailedError for a run that did not finish, though a suspended one may still."""
    if status.state not in ("finished", "suspended"):
        raise RunFailedError(f"run {status.name} {status.state}: {status.reason}")
