"""The few calls to the Kubernetes API that the master makes, with its service account's token."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from pathlib import Path
from typing import Any, Dict, Iterator
from urllib.parse import urlencode

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
Object = Dict[str, Any]


class ApiError(Exception):
    """The API answered with an error; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """One namespace of the API server that this pod runs under."""

    def __init__(self) -> None:
        self._host = os.environ["KUBERNETES_SERVICE_HOST"]
        self._port = int(os.environ["KUBERNETES_SERVICE_PORT"])
        self._tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        # From Python 3.13 on the default. Clusters' certificates often lack what it asks for, such
        # as the issuer's key identifier. Chain, name and dates are verified without it, too.
        self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self.namespace = (ACCOUNT / "namespace").read_text().strip()

    def get(self, path: str, query: dict[str, str] | None = None) -> Object:
        """Read an object or a list; `path` is below the namespace: `core/pods/NAME`."""
        return self._call("GET", path, query=query)

    def delete(self, path: str) -> Object:
        """Delete an object."""
        return self._call("DELETE", path)

    def merge_patch(self, path: str, body: Object) -> Object:
        """Change some fields of an object."""
        return self._call("PATCH", path, body=body, kind="application/merge-patch+json")

    def create(self, path: str, body: Object) -> Object:
        """Make an object."""
        return self._call("POST", path, body=body)

    def watch(self, path: str, query: dict[str, str]) -> Iterator[Object]:
        """Yield watch events until the server ends the stream, after `timeoutSeconds` at most."""
        # A silent server is given a little longer.
        query = {"timeoutSeconds": "300", **query, "watch": "1"}
        connection, response = self._open("GET", path, query, timeout=330)
        try:
            for line in response:
                yield json.loads(line)
        finally:
            connection.close()

    def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        kind: str = "application/json",
    ) -> Object:
        connection, response = self._open(method, path, query, body, kind)
        try:
            answer: Object = json.loads(response.read())
            return answer
        finally:
            connection.close()

    def _open(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        kind: str = "application/json",
        timeout: float = 20,
    ) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        group, _, rest = path.partition("/")
        root = "/api/v1" if group == "core" else f"/apis/{group}/v1"
        url = f"{root}/namespaces/{self.namespace}/{rest}"
        if query:
            url += f"?{urlencode(query)}"
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout, context=self._tls
        )
        headers = {
            # Read anew each time: the kubelet replaces the token before it expires.
            "Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}",
            "Accept": "application/json",
            "Content-Type": kind,
        }
        connection.request(method, url, body=json.dumps(body) if body else None, headers=headers)
        response = connection.getresponse()
        if response.status >= 400:
            text = response.read().decode(errors="replace")
            connection.close()
            raise ApiError(response.status, _message(text))
        return connection, response


def _message(text: str) -> str:
    """The message of a Status object, or the text itself when it is not one."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text
