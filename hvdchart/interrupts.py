"""Turn signals that end a program into exceptions, so that its installed objects are removed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

# Python raises an exception for Ctrl-C. The other signals end Python without one: a service or a
# batch job that is stopped, and a terminal that is closed.
ENDS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupting_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the block like Ctrl-C; then the signal ends the program.

    The block reports its errors: the signal ends the program before a caller can. Only the first
    signal counts: a closed terminal may send several. A signal that other code handles or ignores,
    as `nohup` does, is left unchanged.
    """
    came: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        came.append(number)
        _ignore_all()
        raise KeyboardInterrupt

    _handle(interrupt)
    try:
        yield
    finally:
        if came:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            signal.signal(came[0], signal.SIG_DFL)
            signal.raise_signal(came[0])
        else:
            _restore(interrupt)


@contextmanager
def terminated_on_exception(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Terminate a process if the block raises: only a terminal's Ctrl-C reaches both programs."""
    try:
        yield
    except BaseException:
        process.terminate()
        raise


def exit_on_signals() -> None:
    """Let SIGTERM and SIGHUP end this program like sys.exit, unless other code handles them."""
    parent = os.getpid()

    def end(number: int, _: FrameType | None) -> None:
        if os.getpid() == parent:
            _ignore_all()
            raise SystemExit(128 + number)
        # A fork has no objects to remove.
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    _handle(end)


def _handle(handler: Callable[[int, FrameType | None], object]) -> None:
    """Handle the signals whose default action ends the program; only in the main thread."""
    if threading.current_thread() is threading.main_thread():
        for number in ENDS:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, handler)


def _restore(handler: Callable[[int, FrameType | None], object]) -> None:
    for number in ENDS:
        if signal.getsignal(number) == handler:
            signal.signal(number, signal.SIG_DFL)


def _ignore_all() -> None:
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)
