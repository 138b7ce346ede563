"""HTTP and HTTPS on loopback, for the API servers of the tests."""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from devtools.localkube.pki import Authority


class Api(ABC):
    """Responds to the requests of a server."""

    def __init__(self) -> None:
        self.port = 0
        self.url = ""
        self._server: _Server | None = None
        self.errors: list[BaseException] = []
        self.closed = threading.Event()

    @abstractmethod
    def answer(self, handler: Handler) -> None:
        """Respond to one request."""

    def stop(self) -> None:
        """End responses that would continue."""
        self.closed.set()

    @contextmanager
    def serve(self, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1") -> Iterator[str]:
        """Respond on a separate port, and yield the URL. Raises what went wrong in the server."""
        self._server = _Server(self, tls, address)
        self.port = int(self._server.server_address[1])
        self.url = f"http{'s' if tls else ''}://{address}:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.002,), daemon=True).start()
        try:
            yield self.url
        finally:
            self.close()
        if self.errors:
            raise self.errors[0]

    def close(self) -> None:
        """End the server."""
        self.stop()
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Server(ThreadingHTTPServer):
    """Passes each request to an API, in the thread of its connection."""

    daemon_threads = True
    # A test ends without waiting for responses that no client reads.
    block_on_close = False

    def __init__(self, api: Api, tls: ssl.SSLContext | None, address: str) -> None:
        self.api = api
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, 0), Handler)
        if tls:
            # The thread of the connection does the handshake, at its first read.
            self.socket = tls.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def handle_error(self, request: Any, client_address: Any) -> None:
        problem = sys.exc_info()[1]
        # Clients may close watches and refuse certificates.
        if problem and not isinstance(problem, OSError):
            self.api.errors.append(problem)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: _Server
    protocol_version = "HTTP/1.1"
    # Headers and body are two packets, and clients acknowledge the first after 40 ms.
    disable_nagle_algorithm = True

    @property
    def api(self) -> Api:
        return self.server.api

    def do_GET(self) -> None:
        self.api.answer(self)
        # Close the connection: a client that continues would find that this server ends every watch
        # at once.
        self.close_connection |= self.api.closed.is_set()

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def send_json(self, code: int, answer: dict[str, Any], headers: Mapping[str, str] = {}) -> None:
        self.send_text(code, json.dumps(answer), {"Content-Type": "application/json", **headers})

    def send_text(
        self, code: int, text: str, headers: Mapping[str, str] = {}, missing: int = 0
    ) -> None:
        """Send a response; `missing` bytes are announced but not sent."""
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body) + missing))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def start_chunks(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_chunk(self, data: bytes, missing: int = 0) -> None:
        self.wfile.write(b"%x\r\n%s" % (len(data) + missing, data))
        if not missing:
            self.wfile.write(b"\r\n")

    def log_message(self, format: str, *arguments: object) -> None:
        """Discard the message."""


class Certificates:
    """A certificate authority and a server's certificate for some hosts."""

    def __init__(self, folder: Path, *hosts: str) -> None:
        self.authority = Authority("cluster")
        pair = self.authority.issue("server", hosts=[*hosts])
        key = folder / "key.pem"
        certificate = folder / "certificate.pem"
        key.write_bytes(pair.key)
        certificate.write_bytes(pair.certificate)
        # The server asks its clients for certificates of the same authority, if they have any.
        self.tls = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cadata=self.authority.certificate.decode()
        )
        self.tls.verify_mode = ssl.CERT_OPTIONAL
        # A real API server accepts certificates without key identifiers, which Python 3.13 refuses.
        self.tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self.tls.load_cert_chain(certificate, key)
