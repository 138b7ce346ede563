"""What several subcommands print: lines, remarks, documents, logs, and how a run ended.

Commands print through this module alone, because what a cluster, a file or a program says may have
characters that control a terminal, or line ends that forge a line of hvdchart's own. Three modules
that cannot import a command's write on their own: run/helm_process.py one fixed line, interrupts.py
the error of a program that a signal ends, and calls/caller.py the output of a call.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, TextIO

import typer

from hvd_pods.common.hostile import one_line, printable
from hvdchart.errors import RunFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.console import Console

    from hvdchart.run.follow.logs import LogLine
    from hvdchart.run.state.status import Status

# Columns of a table, or of a document, that no terminal shows: no line is wrapped.
_UNLIMITED = 10_000
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red")


def replace_what_stdout_lacks() -> None:
    """Let characters that the encoding of standard output lacks become question marks.

    As in the locale C, or where PYTHONIOENCODING is set: they would end a command otherwise.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def show(*lines: str) -> None:
    """Print lines to standard output; each stays one line, whatever is in it."""
    _write(sys.stdout, "".join(f"{printable(line, keeps=chr(9))}\n" for line in lines))


def note(*lines: str) -> None:
    """Print lines to standard error, as `show` does; a failure to do so changes nothing else."""
    with suppress(OSError):
        _write(sys.stderr, "".join(f"{printable(line, keeps=chr(9))}\n" for line in lines))


def say(text: str) -> None:
    """Print a remark, which may have several lines, to standard error."""
    note(*f"hvdchart: {text}".split("\n"))


def write_document(text: str) -> None:
    """Print a text to standard output as it is: a document that other programs read, in UTF-8."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    _write(sys.stdout, text)


def print_document(document: object, output: str) -> None:
    """Print a document to standard output as json or yaml; several ones are a stream of yaml."""
    import json

    text = json.dumps(document, indent=2)
    if output == "yaml":
        import yaml

        # Through JSON, so that nothing that occurs twice is written as an alias.
        plain = json.loads(text)
        dumped = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=_UNLIMITED)
        text = f"---\n{dumped}"
    write_document(text.rstrip("\n") + "\n")


def write_output(output: Path | None, text: str) -> None:
    """Write to the file of --write, or to standard output without it.

    Raises FileError when the file cannot be written.
    """
    from hvdchart.files import write_atomically

    if output is None:
        write_document(text)
    else:
        write_atomically(output, text)


def console(*, stderr: bool = False) -> Console:
    """Where to print tables: as wide as the terminal, and without wrapping in a pipe or file."""
    from rich.console import Console

    made = Console(stderr=stderr)
    return made if made.is_terminal else Console(stderr=stderr, width=_UNLIMITED)


def print_log(lines: Iterable[LogLine]) -> None:
    """Print each line of the pods' output as soon as it comes, with its pod where it has one.

    At a terminal, each pod has a colour of its own, unless NO_COLOR is set: https://no-color.org
    """
    colours: dict[str, str] = {}
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in lines:
        if not line.pod:
            _write(sys.stdout, f"{line.text}\n")
            continue
        prefix = f"[{printable(line.pod, keeps='')}]"
        if coloured:
            colour = colours.setdefault(line.pod, _COLOURS[len(colours) % len(_COLOURS)])
            prefix = typer.style(prefix, fg=colour)
        _write(sys.stdout, f"{prefix} {line.text}\n")


def raise_unless_finished(status: Status) -> None:
    """Raise RunFailedError for a run that did not finish; a suspended one may still."""
    if status.state not in ("finished", "suspended"):
        raise RunFailedError(f"run {status.name} {status.state}: {one_line(status.reason, 4096)}")


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()
