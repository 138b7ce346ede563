"""An API server over HTTPS that has no objects: it records who asks, and refuses old tokens."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from devtools.localkube.pki import Authority, KeyPair


@dataclass(frozen=True)
class Caller:
    """Who sent a request: its headers, and the name in its certificate (empty without one)."""

    headers: Mapping[str, str]
    groups: tuple[str, ...]
    name: str

    @property
    def authorization(self) -> str:
        return self.headers.get("Authorization", "")


class SecureApi:
    """The server. Its certificate is for the host `kubernetes` and for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority("cluster")
        self.callers: list[Caller] = []
        # The values of Authorization that it accepts; None: every one.
        self.accepted: set[str] | None = None
        pair = self.authority.issue("server", hosts=["kubernetes", "127.0.0.1"])
        self._tls = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cadata=self.authority.certificate.decode()
        )
        self._tls.verify_mode = ssl.CERT_OPTIONAL
        for name, content in (("key", pair.key), ("certificate", pair.certificate)):
            (folder / name).write_bytes(content)
        self._tls.load_cert_chain(folder / "certificate", folder / "key")
        self.port = 0

    @contextmanager
    def serve(self) -> Iterator[SecureApi]:
        """Answer requests."""
        handler = type("Handler", (_Handler,), {"api": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        server.block_on_close = False
        server.socket = self._tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def issue(self, user: str) -> KeyPair:
        """A certificate for a person, whom the server knows by it."""
        return self.authority.issue(user)

    def cluster(self, **entries: Any) -> dict[str, Any]:
        """A kubeconfig's entry for this server."""
        authority = base64.b64encode(self.authority.certificate).decode()
        return {"server": self.url, "certificate-authority-data": authority, **entries}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are two packets, and clients acknowledge the first after 40 ms.
    disable_nagle_algorithm = True
    api: SecureApi

    def do_GET(self) -> None:
        connection = self.connection
        assert isinstance(connection, ssl.SSLSocket)
        peer: Any = connection.getpeercert() or {}
        names = [value for part in peer.get("subject", ()) for _, value in part]
        groups = tuple(self.headers.get_all("Impersonate-Group") or ())
        caller = Caller(dict(self.headers), groups, "".join(names))
        self.api.callers.append(caller)
        accepted = self.api.accepted
        if accepted is None or caller.authorization in accepted:
            self._answer(200, {"items": []})
        else:
            self._answer(401, {"message": "Unauthorized"})

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            return  # The client refused the certificate, or has closed the connection.

    def log_message(self, *arguments: object) -> None:
        """Write nothing."""


def write_kubeconfig(
    path: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None, **more: Any
) -> None:
    """Write a kubeconfig of one context, with this cluster and user; `more` replaces keys of it."""
    document = {
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user or {}}],
        **more,
    }
    path.write_text(json.dumps(document))
