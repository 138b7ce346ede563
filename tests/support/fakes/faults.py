"""Faults of a response or a watch of the API server for tests."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.fakes.server import Handler

Object = dict[str, Any]
Failure = Callable[["Handler"], None]
# Seconds after which a test that waits for a request or a watch fails, also on a busy machine.
TIMEOUT = 30.0


def status(code: int, message: str = "on purpose", **headers: str) -> Failure:
    """Return a failure that responds with a Status object; `Retry_After` becomes a header."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.send_json(*status_object(code, message), named)


def text(code: int, body: str) -> Failure:
    """Return a failure that responds with a text, as a proxy does."""
    return lambda handler: handler.send_text(code, body)


def accept(handler: Handler) -> None:
    """Respond to a change as if it had been made."""
    handler.send_json(200, {"metadata": {}})


def cut_answer(handler: Handler) -> None:
    """Close the connection in the middle of the response."""
    handler.close_connection = True
    handler.send_text(200, '{"metadata": {"na', missing=20)


def reset(handler: Handler) -> None:
    handler.close_connection = True
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket.socket(fileno=handler.connection.detach()).close()


def silence(handler: Handler) -> None:
    """Send no response for as long as the test runs."""
    handler.close_connection = True
    handler.api.closed.wait(TIMEOUT)


def end(handler: Handler) -> None:
    """End a watch as the server does after some time."""
    with contextlib.suppress(OSError):
        handler.wfile.write(b"0\r\n\r\n")


def cut_chunk(handler: Handler) -> None:
    """Close the connection in the middle of a chunk of a watch."""
    handler.close_connection = True
    handler.send_chunk(b'{"type": "ADDED", "obj', missing=20)


def status_object(code: int, message: str) -> tuple[int, Object]:
    """Return a code and the Status object that the API server sends with it."""
    return code, {"kind": "Status", "status": "Failure", "message": message, "code": code}
