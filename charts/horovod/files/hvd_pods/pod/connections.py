"""A server for ports that training code and other pods can reach, in one thread.

A connection has a time limit, from its begin to the last byte of its response, and a limit on the
bytes that it sends. When there are too many connections, a new one replaces the oldest: honest
clients need milliseconds. shared/untrusted.py protects in the same way against texts and files.
"""

from __future__ import annotations

import selectors
import socket
import time
from dataclasses import dataclass
from typing import Callable, NamedTuple, Optional

from hvd_pods.pod.reporting import log

# All workers of a large run may connect at once.
BACKLOG = 1024
# Seconds to wait after a connection cannot be accepted, for instance for lack of descriptors.
ACCEPT_RETRY_DELAY_SECONDS = 0.1


class Limits(NamedTuple):
    """How long a connection may take, in seconds, how many bytes it may send, and how many may be
    open at a time.
    """

    seconds: float
    size: int
    connections: int


@dataclass
class _Progress:
    until: float
    received: bytes = b""
    # The rest of the response. After it is sent, the client's remaining data is read to its end.
    unsent: memoryview | None = None


def no_body(request: bytes) -> int:
    """Report a body of 0 bytes after the end of a request."""
    return 0


# Receives a client's data, up to the end of its request, and the connection. Returns the response,
# after which the connection is closed, or None to keep the connection, which is blocking then.
Answer = Callable[[bytes, socket.socket], Optional[bytes]]


class ConnectionServer:
    """Accepts connections at `address` (empty: all, of IPv4 and IPv6) when `serve` runs.

    Port 0 is any free port. `end` ends a request; other requests get no response. `body` receives a
    request and returns the number of bytes that follow its end; if it is positive, the request that
    is answered includes the end and these bytes. `size` returns how many bytes a connection may
    send at present, at most the number in `limits`. Raises OSError if the port is in use.
    """

    def __init__(
        self,
        address: str,
        port: int,
        end: bytes,
        answer: Answer,
        limits: Limits,
        body: Callable[[bytes], int] = no_body,
        size: Callable[[socket.socket], int] | None = None,
    ) -> None:
        self._listener = listen(address, port)
        self._end = end
        self._answer = answer
        self._limits = limits
        self._body = body
        self._size = size
        # The oldest connection first, which is also the first one to time out.
        self._open: dict[socket.socket, _Progress] = {}
        self._has_failed = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    @property
    def port(self) -> int:
        """Return the port's number, which the kernel chooses for port 0."""
        return int(self._listener.getsockname()[1])

    def serve(self) -> None:
        """Respond to connections forever."""
        while True:
            oldest = next(iter(self._open.values()), None)
            seconds_left = max(0.0, oldest.until - time.monotonic()) if oldest else None
            for key, _ in self._selector.select(seconds_left):
                if key.data is None:
                    self._accept()
                # A new connection may just have replaced this one.
                elif key.data in self._open:
                    self._continue(key.data, self._open[key.data])
            now = time.monotonic()
            late = [
                connection for connection, progress in self._open.items() if progress.until <= now
            ]
            for connection in late:
                self._close(connection)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            time.sleep(ACCEPT_RETRY_DELAY_SECONDS)
            return
        if len(self._open) >= self._limits.connections:
            self._close(next(iter(self._open)))
        connection.setblocking(False)
        self._open[connection] = _Progress(time.monotonic() + self._limits.seconds)
        self._selector.register(connection, selectors.EVENT_READ, connection)

    def _continue(self, connection: socket.socket, progress: _Progress) -> None:
        try:
            if progress.unsent:
                self._send(connection, progress, progress.unsent)
            else:
                self._receive(connection, progress)
        except BlockingIOError:
            return
        except OSError:
            # The client has closed the connection.
            self._close(connection)

    def _receive(self, connection: socket.socket, progress: _Progress) -> None:
        most = self._size(connection) if self._size else self._limits.size
        data = connection.recv(max(0, most - len(progress.received)))
        progress.received += data
        request, end, rest = progress.received.partition(self._end)
        size = self._body(request) if end else 0
        if end and len(rest) >= size and progress.unsent is None:
            if size:
                request += end + rest[:size]
            self._take(request, connection, progress)
        elif not data or len(progress.received) >= most:
            self._close(connection)

    def _take(self, request: bytes, connection: socket.socket, progress: _Progress) -> None:
        # Unregister it first: if the callback keeps the connection, another thread may close it at
        # once.
        self._selector.unregister(connection)
        connection.setblocking(True)
        try:
            answer = self._answer(request, connection)
        except Exception as problem:  # noqa: BLE001 - no client may end the process, by no defect
            if not self._has_failed:
                log(f"cannot answer a request on port {self.port}: {problem!r}")
            self._has_failed = True
            answer = b""
        if answer is None:
            del self._open[connection]
            return
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_WRITE, connection)
        self._send(connection, progress, memoryview(answer))

    def _send(self, connection: socket.socket, progress: _Progress, rest: memoryview) -> None:
        progress.unsent = rest
        progress.unsent = rest[connection.send(rest) :]
        if not progress.unsent:
            # The kernel discards the response when a connection is closed with unread data.
            connection.shutdown(socket.SHUT_WR)
            self._selector.modify(connection, selectors.EVENT_READ, connection)

    def _close(self, connection: socket.socket) -> None:
        del self._open[connection]
        self._selector.unregister(connection)
        connection.close()


def listen(address: str, port: int) -> socket.socket:
    """Listen without blocking at an address, or at all addresses of this pod if it is empty.

    Raises OSError if the port is in use or the address is not this pod's.
    """
    is_dual = not address and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual or ":" in address else socket.AF_INET
    listener = socket.create_server(
        (address, port), family=family, backlog=BACKLOG, dualstack_ipv6=is_dual
    )
    listener.setblocking(False)
    return listener
