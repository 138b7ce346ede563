"""The rendezvous of Horovod's Gloo: a key-value store over HTTP.

Ranks store their addresses here and get the addresses of the others. A rank must first send the
run's secret (rank/start.py): the store does not respond to others.
"""

from __future__ import annotations

import hmac
import re
import socket

from hvd_pods.pod.connections import ConnectionServer, Limits

# Seconds and bytes of a request: the addresses for 1,800 peers. A full store accepts no more
# values.
STORE_LIMITS = Limits(seconds=3.0, size=1 << 18, connections=1024)
MAX_STORED_BYTES = 1 << 26
# The maximum request size in bytes before the sender has sent the secret: the secret needs fewer.
# All connections together then take 1 MiB. With the limit for ranks they would take 256 MiB.
MAX_INTRODUCTION_BYTES = 1 << 10
HTTP_REQUEST = re.compile(rb"(GET|PUT|DELETE) /([^ \r\n]{1,512}) HTTP/")
LENGTH = re.compile(rb"^content-length: *(\d{1,9})\r?$", re.I | re.M)


def body_size(request: bytes) -> int:
    """Return the number of bytes that follow a request's headers."""
    header = LENGTH.search(request)
    return int(header[1]) if header else 0


def format_answer(status: bytes, content: bytes = b"") -> bytes:
    """Format a response after which the connection is closed."""
    return b"HTTP/1.0 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(content), content)


class GlooStore:
    """Serves at an address of this pod while `serve` runs. Raises OSError."""

    def __init__(self, address: str, secret: str, limits: Limits = STORE_LIMITS) -> None:
        self._introduction = f"HVD {secret} HTTP/1.0".encode()
        self._known: set[str] = set()
        self._values: dict[bytes, bytes] = {}
        self._size = 0
        self._most_requested = limits.size
        end = b"\r\n\r\n"
        server = ConnectionServer(address, 0, end, self._answer, limits, body_size, self._limit)
        self.port = server.port
        self.serve = server.serve

    def _limit(self, connection: socket.socket) -> int:
        """Return how many bytes a connection may send: few before its address shows the secret."""
        is_known = connection.getpeername()[0] in self._known
        return self._most_requested if is_known else MAX_INTRODUCTION_BYTES

    def _answer(self, request: bytes, connection: socket.socket) -> bytes:
        peer = connection.getpeername()[0]
        if hmac.compare_digest(request, self._introduction):
            self._known.add(peer)
            return b"known"
        parsed = HTTP_REQUEST.match(request)
        if peer not in self._known or not parsed:
            return b""
        method, key = parsed.groups()
        if method == b"GET":
            if key not in self._values:
                return format_answer(b"404 Not Found")
            return format_answer(b"200 OK", self._values[key])
        # A rank deletes its own value when all are connected, and may then store another one.
        self._size -= len(self._values.pop(key, b""))
        if method == b"PUT":
            value = request.partition(b"\r\n\r\n")[2]
            if self._size + len(value) > MAX_STORED_BYTES:
                return format_answer(b"507 Insufficient Storage")
            self._values[key] = value
            self._size += len(value)
        return format_answer(b"200 OK")
