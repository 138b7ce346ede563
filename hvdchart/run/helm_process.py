"""Run Helm as a process that Ctrl-C does not end in the middle of a change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from hvdchart.interrupts import ENDS

# The option with which Helm asks the API server what an upgrade would change.
DRY_RUN = "--dry-run=server"
# What is printed at the first Ctrl-C during a change.
WAITING = "hvdchart: waiting for Helm to end; Ctrl-C again stops it"
# Seconds that Helm has to end after an interrupt, and again after each signal sent to it.
_GRACE_PERIOD_SECONDS = 10.0
# Seconds between two checks for an interrupt: Python may handle one only when the wait returns.
_INTERRUPT_POLL_INTERVAL_SECONDS = 0.2
# Seconds within which a second Ctrl-C counts as the first.
_SAME_INTERRUPT_SECONDS = 0.3
# The signals that hvdchart may handle like Ctrl-C (interrupts.py).
_INTERRUPTS = (signal.SIGINT, *ENDS)


class Ended(NamedTuple):
    """How Helm ended: its exit code, its output, and its errors, or else a text with the code."""

    code: int
    output: str
    message: str


def run_to_end(command: Sequence[str], values: bytes) -> Ended:
    """Run a program with `values` as its input.

    Ctrl-C does not reach a Helm that changes something: an interrupted Helm leaves objects of both
    revisions, and no revision that has all of them. It has time to end; the next Ctrl-C asks it to
    end at once. A Helm that only reads ends with Ctrl-C, and may prompt at the terminal. SIGTERM
    and SIGHUP work like Ctrl-C if this program has handlers for them.
    """
    changes = command[1] in ("upgrade", "uninstall") and DRY_RUN not in command
    pipe = subprocess.PIPE
    with (
        _interrupts() as presses,
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=changes
        ) as process,
    ):
        output, errors = _communicate(process, values, _Escalation(process, presses, changes))
    message = errors.decode(errors="replace").strip() or f"exit code {process.returncode}"
    return Ended(process.returncode, output.decode(errors="replace"), message)


class _Escalation:
    """What Helm is told after interrupts: the next step follows each Ctrl-C, and then in time.

    `presses` are the times of Ctrl-C, which grow. `changes`: Helm changes something.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], presses: Sequence[float], changes: bool
    ) -> None:
        self._process = process
        self._presses = presses
        # None: only print that hvdchart waits for Helm's change.
        self._steps: list[signal.Signals | None] = [signal.SIGTERM, signal.SIGKILL]
        if changes:
            self._steps.insert(0, None)
        self._taken = 0
        self._taken_at = 0.0

    def proceed(self) -> bool:
        """Take the next step if it is due. Return False when it is due and there is none left."""
        now = time.monotonic()
        is_asked = (
            self._taken < len(self._presses) and now - self._presses[0] > _SAME_INTERRUPT_SECONDS
        )
        is_late = self._taken > 0 and now - self._taken_at > _GRACE_PERIOD_SECONDS
        if not is_asked and not is_late:
            return True
        if self._taken == len(self._steps):
            return False
        self._take(self._steps[self._taken])
        self._taken += 1
        self._taken_at = now
        return True

    def _take(self, step: signal.Signals | None) -> None:
        with suppress(OSError, ValueError):
            if step is None:
                print(WAITING, file=sys.stderr)
            elif os.getpgid(self._process.pid) == self._process.pid:
                # Send it to the process group: Helm may have started a plugin for credentials.
                os.killpg(self._process.pid, step)
            else:
                self._process.send_signal(step)


def _communicate(
    process: subprocess.Popen[bytes], values: bytes, escalation: _Escalation
) -> tuple[bytes, bytes]:
    """Give Helm its input; return its output and its errors."""
    unsent: bytes | None = values
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(unsent, timeout=_INTERRUPT_POLL_INTERVAL_SECONDS)
        # The first call keeps the input for later ones.
        unsent = None
        if not escalation.proceed():
            # Helm was killed, but its child processes still hold its output open.
            return b"", b""


@contextmanager
def _interrupts() -> Iterator[list[float]]:
    """Record the times of Ctrl-C and similar signals in the block; pass them on at its end."""
    presses: list[float] = []
    taken: list[signal.Signals] = []
    before = {number: signal.getsignal(number) for number in _INTERRUPTS}
    # Only the main thread gets signals.
    if threading.current_thread() is not threading.main_thread():
        yield presses
        return

    def press(number: int, _: object) -> None:
        # A terminal, and programs that forward its signals, may send the first one twice.
        if not presses or time.monotonic() - presses[0] > _SAME_INTERRUPT_SECONDS:
            presses.append(time.monotonic())
            taken.append(signal.Signals(number))

    handlers = {number: handler for number, handler in before.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, press)
    try:
        yield presses
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    _repeat([(handlers[number], number) for number in taken])


def _repeat(calls: Sequence[tuple[Callable[..., object], int]]) -> None:
    """Call signal handlers; at the end, raise the first KeyboardInterrupt among them."""
    raised: KeyboardInterrupt | None = None
    for handler, number in calls:
        try:
            handler(number, None)
        except KeyboardInterrupt as interrupt:
            raised = raised or interrupt
    if raised:
        raise raised
