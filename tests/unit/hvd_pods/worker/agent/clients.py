"""Clients of an agent that do what a master would not do."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hvd_pods.cluster.certificates import Files
from hvd_pods.protocol import frames
from tests.unit.hvd_pods.worker.agent.pods import Served

TIMEOUT = 20.0
# A request whose program leaves a file.
GOOD = {"run": "", "fence": 0, "attempt": 0, "variables": {}, "stay": 0.0}


def context_of(folder: Path, authority: Files, own: Files | None = None) -> ssl.SSLContext:
    """Return how a client speaks TLS that has these files, or no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority["ca.crt"].decode())
    if own:
        for name in ("tls.crt", "tls.key"):
            (folder / f"client-{name}").write_bytes(own[name])
        context.load_cert_chain(folder / "client-tls.crt", folder / "client-tls.key")
    return context


@contextmanager
def connect(port: int, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    """Connect, from an address of this machine, and read the agent's first line."""
    to = ("127.0.0.1", port)
    with socket.create_connection(to, TIMEOUT, source_address=(source, 0)) as connection:
        while connection.recv(1) != b"\n":
            continue
        yield connection


def read_to_the_end(connection: socket.socket) -> bytes:
    """Return what the agent still sends before it ends a connection."""
    return b"".join(iter(lambda: connection.recv(4096), b""))


def ask_as_browsers_do(port: int, times: int = 1) -> None:
    """Send requests that are not of the protocol, each over a connection of its own."""
    for _ in range(times):
        with connect(port) as connection:
            connection.sendall(b"GET /secret-path HTTP/1.1\r\n\r\n")
            read_to_the_end(connection)


class Client:
    """A client after its handshake."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self.connection = connection

    def send(self, kind: bytes, content: bytes) -> None:
        self.connection.sendall(frames.FRAME_HEADER.pack(kind, len(content)) + content)

    def receive(self) -> tuple[bytes, bytes]:
        """Return the next frame. Raises OSError, ConnectionResetError at the end."""
        kind, length = frames.FRAME_HEADER.unpack(self._read(frames.FRAME_HEADER.size))
        return kind, self._read(length)

    def receive_until(self, kind: bytes) -> bytes:
        """Return the content of the next frame of a kind; others are left out."""
        return next(content for got, content in iter(self.receive, None) if got == kind)

    def ask(self, nonce: str, argv: list[str], **fields: Any) -> None:
        request = {**GOOD, "nonce": nonce, "argv": argv, **fields}
        self.send(frames.REQUEST, json.dumps(request).encode())

    def _read(self, number: int) -> bytes:
        content = b""
        while len(content) < number:
            part = self.connection.recv(number - len(content))
            if not part:
                raise ConnectionResetError("the connection has ended")
            content += part
        return content


@contextmanager
def shake_hands(
    port: int, context: ssl.SSLContext, name: str, session: ssl.SSLSession | None = None
) -> Iterator[Client]:
    """Connect, and begin TLS. With TLS 1.3, a refusal comes when the client reads."""
    with connect(port) as connection:
        tls = context.wrap_socket(connection, server_hostname=name, session=session)
        with tls:
            yield Client(tls)


@contextmanager
def connect_as_master(agent: Served, folder: Path, files: Any) -> Iterator[tuple[Client, str]]:
    """Be the release's master, to whom the agent has sent a nonce."""
    context = context_of(folder, files.worker, files.master)
    with shake_hands(agent.port, context, files.worker_name) as client:
        kind, nonce = client.receive()
        assert kind == frames.HELLO
        yield client, nonce.decode()
