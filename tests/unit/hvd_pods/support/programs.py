"""Programs that a test starts in a worker as a master does: over an agent connection."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from hvd_pods.master.agent_connection import AgentConnection
from hvd_pods.master.remote import wait_for
from hvd_pods.protocol import frames
from hvd_pods.protocol.keys import Keys
from hvd_pods.protocol.start_request import StartRequest

TIMEOUT = 60.0


class Program:
    """A program in a worker: its output so far, and its exit code when it has ended."""

    def __init__(self, address: str, port: int, keys: Keys, request: StartRequest) -> None:
        self.connection = AgentConnection(address, port, keys, request)
        self.output = b""
        self.errors = b""

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def exit_code(self) -> int | None:
        return self.connection.exit_code

    def close(self) -> None:
        self.connection.close()

    def give(self, content: bytes) -> None:
        """Send standard input; without content, close it."""
        self.connection.send(frames.INPUT, content)

    def step(self, until: float) -> None:
        """Handle the next message, at most until a moment of time.monotonic()."""
        wait_for(self.connection, until)
        for kind, content in self.connection.step():
            self.output += content if kind == frames.OUTPUT else b""
            self.errors += content if kind == frames.ERRORS else b""

    def read_until(self, text: bytes) -> bytes:
        """Return the output up to `text`; later output is read later."""
        until = time.monotonic() + TIMEOUT
        while text not in self.output:
            assert self.exit_code is None, f"it has ended with {self.exit_code} before {text!r}"
            assert time.monotonic() < until, f"no {text!r} within {TIMEOUT} s: {self.output!r}"
            self.step(until)
        before, _, self.output = self.output.partition(text)
        return before + text

    def wait_for_answer(self) -> None:
        """Wait until the agent has started the program, or has refused it."""
        while self.connection.due != float("inf"):
            self.step(self.connection.due)

    def wait(self, seconds: float = TIMEOUT) -> int:
        """Return the exit code when the program has ended."""
        until = time.monotonic() + seconds
        while self.exit_code is None:
            assert time.monotonic() < until, f"it has not ended within {seconds} s"
            self.step(until)
        return self.exit_code


def make_request(
    argv: Sequence[str],
    fence: int = 0,
    *,
    attempt: int = 0,
    run: str = "",
    variables: Mapping[str, str] | None = None,
    stay: float = 0.0,
) -> StartRequest:
    """Return a request; fields that a test does not set have defaults."""
    return StartRequest(run, fence, attempt, list(argv), dict(variables or {}), stay)
