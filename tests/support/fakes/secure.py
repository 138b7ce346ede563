"""An API server over HTTPS without objects: it records the callers, and refuses old tokens."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devtools.localkube.pki import KeyPair
from tests.support.fakes.server import Api, Certificates, Handler


@dataclass(frozen=True)
class Caller:
    """Who sent a request: its headers, and the name in its certificate (empty without one)."""

    headers: Mapping[str, str]
    groups: tuple[str, ...]
    name: str

    @property
    def authorization(self) -> str:
        return self.headers.get("Authorization", "")


class SecureApi(Api):
    """The server. Its certificate is for the host `kubernetes` and for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._certificates = Certificates(folder, "kubernetes", "127.0.0.1")
        self.authority = self._certificates.authority
        self.callers: list[Caller] = []
        # The accepted values of Authorization; None: every value.
        self.accepted: set[str] | None = None

    @contextmanager
    def running(self) -> Iterator[SecureApi]:
        """Respond to requests."""
        with self.serve(self._certificates.tls):
            yield self

    def issue(self, user: str) -> KeyPair:
        """Return a certificate for a user, which identifies the user to the server."""
        return self.authority.issue(user)

    def cluster(self, **entries: Any) -> dict[str, Any]:
        """Return a kubeconfig's entry for this server."""
        authority = base64.b64encode(self.authority.certificate).decode()
        return {"server": self.url, "certificate-authority-data": authority, **entries}

    def answer(self, handler: Handler) -> None:
        connection = handler.connection
        assert isinstance(connection, ssl.SSLSocket)
        peer: Any = connection.getpeercert() or {}
        names = [value for part in peer.get("subject", ()) for _, value in part]
        groups = tuple(handler.headers.get_all("Impersonate-Group") or ())
        caller = Caller(dict(handler.headers), groups, "".join(names))
        self.callers.append(caller)
        if self.accepted is None or caller.authorization in self.accepted:
            handler.send_json(200, {"items": []})
        else:
            handler.send_json(401, {"message": "Unauthorized"})


def write_kubeconfig(
    path: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None, **more: Any
) -> None:
    """Write a kubeconfig of one context, with this cluster and user; `more` replaces some of its
    keys.
    """
    document = {
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user or {}}],
        **more,
    }
    path.write_text(json.dumps(document))
