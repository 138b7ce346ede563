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

from hvdchart.interrupts import ENDS

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


def run_to_end(command: Sequence[str], values: bytes) -> tuple[int, str, str]:
    """Run a program with `values` as its input; return its exit code, output and errors.

    If there are no errors, the text of the exit code replaces them.

    Ctrl-C does not reach a Helm that changes something: an interrupted Helm leaves objects of both
    revisions, and no revision that has all of them. It has time to end; the next Ctrl-C asks it to
    end at once. A Helm that only reads ends with Ctrl-C, and may prompt at the terminal. SIGTERM
    and SIGHUP work like Ctrl-C if this program has handlers for them.
    """
    changes = command[1] in ("upgrade", "uninstall") and "--dry-run=server" not in command
    # Steps after an interrupt, in order; None: only print that hvdchart waits for Helm's change.
    steps: list[signal.Signals | None] = [signal.SIGTERM, signal.SIGKILL]
    if changes:
        steps.insert(0, None)
    given: bytes | None = values
    pipe = subprocess.PIPE
    with (
        _interrupts() as presses,
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=changes
        ) as process,
    ):
        # The number of steps taken, and the time of the last one.
        taken = 0
        last = 0.0
        while True:
            with suppress(subprocess.TimeoutExpired):
                output, errors = process.communicate(
                    given, timeout=_INTERRUPT_POLL_INTERVAL_SECONDS
                )
                break
            given = None
            now = time.monotonic()
            is_asked = taken < len(presses) and now - presses[0] > _SAME_INTERRUPT_SECONDS
            if is_asked or (taken and now - last > _GRACE_PERIOD_SECONDS):
                if taken == len(steps):
                    # Helm was killed, but its child processes still hold its output open.
                    output = b""
                    errors = b""
                    break
                _end(process, steps[taken])
                taken += 1
                last = now
    message = errors.decode(errors="replace").strip() or f"exit code {process.returncode}"
    return process.returncode, output.decode(errors="replace"), message


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

    own = {number: handler for number, handler in before.items() if callable(handler)}
    for number in own:
        signal.signal(number, press)
    try:
        yield presses
    finally:
        for number, handler in own.items():
            signal.signal(number, handler)
    _repeat([(own[number], number) for number in taken])


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


def _end(process: subprocess.Popen[bytes], sent: signal.Signals | None) -> None:
    """Send a signal to Helm; without a signal, print that hvdchart waits for its change."""
    with suppress(OSError, ValueError):
        if sent is None:
            print(WAITING, file=sys.stderr)
        elif os.getpgid(process.pid) == process.pid:
            # Send it to the process group: Helm may have started a plugin for credentials.
            os.killpg(process.pid, sent)
        else:
            process.send_signal(sent)
