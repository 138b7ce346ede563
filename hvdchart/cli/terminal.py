"""The output of subcommands: lines, remarks, documents, logs, and the result of a run.

Commands print through this module only. Text from a cluster, a file or a program may contain
characters that control a terminal, or line ends that imitate a line of hvdchart. Three modules that
cannot import this one print by themselves: run/helm_process.py one fixed line, interrupts.py the
error of a program that a signal ends, and calls/caller.py the output of a call.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, TextIO

import typer

from hvd_pods.shared.untrusted import one_line, printable
from hvdchart.errors import FileError, RunFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.console import Console

    from hvdchart.run.follow.logs import LogLine
    from hvdchart.run.state.status import Status

# The width of tables that no terminal shows: no line is wrapped.
_UNLIMITED_WIDTH = 10_000
_STANDARD_ERROR = 2
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red")


def prepare_streams() -> None:
    """Prepare standard output and standard error. Raises FileError if the former is closed.

    The next file that a command opens would take the place of a closed stream, and programs that it
    starts would write there. Remarks may be lost, but not the output of a command.

    Characters that the encoding of standard output lacks become question marks: otherwise, they
    would end a command. The locale C has such an encoding, and PYTHONIOENCODING may set one.
    """
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STANDARD_ERROR)
        os.set_inheritable(_STANDARD_ERROR, True)
        sys.stderr = open(_STANDARD_ERROR, "w", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        raise FileError("standard output is closed: to discard it, redirect it to /dev/null")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def print_lines(*lines: str) -> None:
    """Print lines to standard output; print each as one line, whatever characters it contains."""
    _write(sys.stdout, "".join(f"{printable(line, keeps=chr(9))}\n" for line in lines))


def print_notes(*lines: str) -> None:
    """Print lines to standard error, as `print_lines` does; ignore a failure to write."""
    with suppress(OSError):
        _write(sys.stderr, "".join(f"{printable(line, keeps=chr(9))}\n" for line in lines))


def print_remark(text: str) -> None:
    """Print a remark, which may have several lines, to standard error."""
    print_notes(*f"hvdchart: {text}".split("\n"))


def write_document(text: str) -> None:
    """Print a text to standard output unchanged, in UTF-8: other programs read this document."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    _write(sys.stdout, text)


def print_document(document: object, output: str) -> None:
    """Print a document as json or yaml to standard output; print several as a stream of yaml."""
    import json

    text = json.dumps(document, indent=2)
    if output == "yaml":
        from hvdchart.text import yaml_text

        # Converting through JSON removes shared objects, which YAML would write as aliases.
        text = f"---\n{yaml_text(json.loads(text))}"
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


def make_console(*, stderr: bool = False) -> Console:
    """Return the console for tables: as wide as the terminal; no wrapping in a pipe or file."""
    from rich.console import Console

    terminal = Console(stderr=stderr)
    return terminal if terminal.is_terminal else Console(stderr=stderr, width=_UNLIMITED_WIDTH)


def print_log(lines: Iterable[LogLine]) -> None:
    """Print each line of the pods' output as soon as it comes, with its pod if there is one.

    At a terminal, each pod has its own colour, unless NO_COLOR is set: https://no-color.org
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
    """Raise RunFailedError for a run that did not finish; a suspended run may still finish."""
    from hvdchart.run.state.status_text import MAX_REASON_CHARACTERS

    if status.state not in ("finished", "suspended"):
        reason = one_line(status.reason, MAX_REASON_CHARACTERS)
        raise RunFailedError(f"run {status.name} {status.state}: {reason}")


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()
