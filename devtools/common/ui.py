"""Steps shown to a person on standard error; results go to standard output."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

console = Console(stderr=True, highlight=False)
TAIL_LINES = 15


@contextmanager
def step(title: str) -> Iterator[None]:
    """Shows `title` while the body runs, and how long it took once it is done."""
    began = time.monotonic()
    with console.status(title):
        try:
            yield
        except BaseException:
            console.print(f"[red]failed[/]  {title} ({time.monotonic() - began:.1f} s)")
            raise
    console.print(f"[green]done[/]    {title} ({time.monotonic() - began:.1f} s)")


def note(text: str) -> None:
    console.print(text, soft_wrap=True)


def tail(log: Path) -> str:
    """The last lines of a log, for a message about the failure that they tell of."""
    if not log.exists():
        return f"(no log at {log})"
    with log.open(errors="replace") as file:
        lines = deque(file, maxlen=TAIL_LINES)
    return f"the end of {log}:\n" + "".join(f"    {line}" for line in lines).rstrip()
