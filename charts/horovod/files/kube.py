"""The calls to the Kubernetes API that the master makes, with its service account's token."""

from __future__ import annotations

import json
import os
import ssl
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Dict, Iterator
from urllib.parse import urlencode

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Seconds without a byte from the API server after which a call fails.
CALL_TIMEOUT = 20.0
# Seconds after which the API server ends a watch. A silent server is given a little longer.
WATCH_SECONDS, WATCH_TIMEOUT = 300, 330.0
# The `status` of an ApiError that has no HTTP status.
NO_ANSWER = 0
Object = Dict[str, Any]


class ApiError(Exception):
    """A call to the API failed.

    `status` is the HTTP status, or NO_ANSWER when the API server could not be reached or its answer
    was cut or is not JSON.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message if status == NO_ANSWER else f"{status}: {message}")
        self.status = status


class Api:
    """One namespace of the API server that this pod runs under. Each method raises ApiError."""

    def __init__(self) -> None:
        self._host = os.environ["KUBERNETES_SERVICE_HOST"]
        self._port = int(os.environ["KUBERNETES_SERVICE_PORT"])
        self._tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        # Strict verification is the default from Python 3.13 on. It needs extensions that the
        # certificates of many clusters lack, such as the issuer's key identifier. Chain, name and
        # dates are verified without it, too.
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
        return self._call("PATCH", path, body=body, content_type="application/merge-patch+json")

    def create(self, path: str, body: Object) -> Object:
        """Create an object."""
        return self._call("POST", path, body=body)

    def watch(self, path: str, query: dict[str, str]) -> Iterator[Object]:
        """Yield watch events until the server ends the stream, after `timeoutSeconds` at most."""
        query = {"timeoutSeconds": str(WATCH_SECONDS), **query, "watch": "1"}
        with self._send("GET", path, query, timeout=WATCH_TIMEOUT) as response:
            for line in response:
                yield json.loads(line)

    def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        with self._send(method, path, query, body, content_type) as response:
            answer: Object = json.loads(response.read())
            return answer

    @contextmanager
    def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> Iterator[HTTPResponse]:
        """Send a request and yield the response. Every call goes through here.

        Whatever goes wrong, also while the response is read, is raised as ApiError: a caller that
        can do without an answer catches that and nothing else.
        """
        connection = HTTPSConnection(
            self._host, self._port, timeout=timeout or CALL_TIMEOUT, context=self._tls
        )
        try:
            headers = {
                # Read for each request: the kubelet replaces the token before it expires.
                "Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}",
                "Accept": "application/json",
                "Content-Type": content_type,
            }
            connection.request(
                method, self._url(path, query), json.dumps(body) if body else None, headers
            )
            response = connection.getresponse()
            if response.status >= 400:
                text = response.read().decode(errors="replace")
                raise ApiError(response.status, _status_message(text))
            yield response
        # A cut answer is an HTTPException and no OSError, cut JSON is a ValueError.
        except (OSError, HTTPException, ValueError) as problem:
            what = f"{type(problem).__name__}: {problem}"
            message = f"no complete answer from the API server to {method} {path} ({what})"
            raise ApiError(NO_ANSWER, message) from problem
        finally:
            connection.close()

    def _url(self, path: str, query: dict[str, str] | None) -> str:
        group, _, rest = path.partition("/")
        root = "/api/v1" if group == "core" else f"/apis/{group}/v1"
        url = f"{root}/namespaces/{self.namespace}/{rest}"
        return f"{url}?{urlencode(query)}" if query else url


def _status_message(text: str) -> str:
    """The message of a Status object, or the text itself when it is not a Status."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text
