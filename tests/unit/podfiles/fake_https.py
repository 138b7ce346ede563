"""The HTTPS side of the API server for tests, on loopback."""

from __future__ import annotations

import json
import socket
import ssl
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devtools.localkube.pki import Authority

if TYPE_CHECKING:
    from tests.unit.podfiles.fake_api import FakeApi


class HttpsServer(ThreadingHTTPServer):
    """Hands each request to an API, in a thread of its connection."""

    daemon_threads = True
    # A test ends without waiting for answers that nobody reads.
    block_on_close = False

    def __init__(self, api: FakeApi, address: str, tls: ssl.SSLContext) -> None:
        self.api = api
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, 0), Handler)
        # The handshake is done by the thread of the connection, at its first read.
        self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        problem = sys.exc_info()[1]
        # Clients close watches, and refuse certificates.
        if problem and not isinstance(problem, OSError):
            self.api.errors.append(problem)


class Handler(BaseHTTPRequestHandler):
    """One connection, which carries one request."""

    server: HttpsServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.close_connection = True
        self.server.api.answer(self)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def send_json(self, code: int, answer: dict[str, Any], headers: Mapping[str, str] = {}) -> None:
        self.send_text(code, json.dumps(answer), headers)

    def send_text(
        self, code: int, text: str, headers: Mapping[str, str] = {}, missing: int = 0
    ) -> None:
        """Send an answer; `missing` bytes are announced but do not follow."""
        self.send_response(code)
        self.send_header("Content-Length", str(len(text) + missing))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def start_chunks(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_chunk(self, data: bytes, missing: int = 0) -> None:
        self.wfile.write(b"%x\r\n%s" % (len(data) + missing, data))
        if not missing:
            self.wfile.write(b"\r\n")

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing."""


class Certificates:
    """A certificate authority and a server certificate of loopback, made once for all tests."""

    def __init__(self, folder: Path) -> None:
        authority = Authority("test")
        pair = authority.issue("server", hosts=["127.0.0.1", "::1"])
        self.authority = authority.certificate
        self.key, self.certificate = folder / "key.pem", folder / "certificate.pem"
        self.key.write_bytes(pair.key)
        self.certificate.write_bytes(pair.certificate)
