"""Progress messages on standard error; results go to standard output."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape

console = Console(stderr=True, highlight=False)
TAIL_LINES = 15
# Without a terminal for a spinner: seconds between two lines that report a running step.
ALIVE_INTERVAL_SECONDS = 20.0


@contextmanager
def step(title: str) -> Iterator[None]:
    """Show `title` while the body runs, a line at intervals, and the seconds that the body took."""
    began = time.monotonic()
    with console.status(title) if console.is_terminal else _lines(title, began):
        try:
            yield
        except BaseException:
            console.print(f"[red]failed[/]  {title} ({time.monotonic() - began:.1f} s)")
            raise
    console.print(f"[green]done[/]    {title} ({time.monotonic() - began:.1f} s)")


@contextmanager
def _lines(title: str, began: float) -> Iterator[None]:
    """Print a line every ALIVE_INTERVAL_SECONDS."""
    ended = threading.Event()

    def show() -> None:
        while not ended.wait(ALIVE_INTERVAL_SECONDS):
            console.print(f"running {title} ({time.monotonic() - began:.0f} s so far)")

    printer = threading.Thread(target=show, daemon=True)
    printer.start()
    try:
        yield
    finally:
        ended.set()
        printer.join()


def note(text: str) -> None:
    """Print a line without breaking it."""
    console.print(text, soft_wrap=True)


def show_error(error: Exception) -> None:
    """Print the error that ends a command; a DevtoolsError includes its remedy."""
    console.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)


def last_lines(log: Path) -> str:
    """Return the last lines of a log, for a message about a failure."""
    if not log.exists():
        return f"(there is no log at {log})"
    with log.open(errors="replace") as file:
        lines = deque(file, maxlen=TAIL_LINES)
    return f"the end of {log}:\n" + "".join(f"    {line}" for line in lines).rstrip()
