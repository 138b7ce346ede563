"""Requests to the API server of a cluster; the only module that sends them.

Objects are plain dicts in the API's own form. Objects of any version of Kubernetes can be read.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate
from http import HTTPStatus
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError

from hvd_pods.shared.untrusted import one_line
from hvdchart import __version__
from hvdchart.errors import ClusterError
from hvdchart.run.kube.kubeconfig import ApiConnection, Credentials, find_connection
from hvdchart.run.kube.proxy import drop_password, proxy_manager
from hvdchart.run.state.release import Object

T = TypeVar("T")
# Seconds to wait for a list or an object: a busy API server needs seconds, and a user waits.
READ_TIMEOUT_SECONDS = 30
# Bytes of a line that are kept. An object in a response is smaller: etcd's limit is 1.5 MiB.
MAX_LINE_BYTES = 16 << 20
# Seconds until TCP asks a silent peer whether it is there, and between two such questions, and the
# number of questions without an answer. A gateway forgets connections on which nothing is sent.
# TCP_KEEPALIVE is the name of TCP_KEEPIDLE on macOS.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_SOCKET_OPTIONS = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), number)
        for name, number in _KEEPALIVE.items()
        if hasattr(socket, name)
    ),
]
# The text that urllib3 puts before the reason of a failed connection.
_OF_LIBRARY = re.compile(r"^\w*Connection\(.*?\): (Failed to establish a new connection: )?")
# The maximum number of characters of the API server's reason to refuse a request.
_MAX_REFUSAL_CHARACTERS = 2000


class Lines(NamedTuple):
    """The lines of a response, and when it began.

    The time is the API server's, in whole seconds and RFC 3339; it is empty if the response has
    none.
    """

    lines: Iterator[str]
    began: str


class RefusedError(ClusterError):
    """The API server refused a request with this HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def is_temporary(error: ClusterError) -> bool:
    """Return whether another attempt may succeed: most refusals are final."""
    if isinstance(error, RefusedError):
        return error.status >= 500 or error.status in (410, 429)
    return True


def unless_refused(
    call: Callable[[], T],
    default: T,
    statuses: Collection[int] = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND),
) -> T:
    """Return the result of a call, or the default if the API server refuses it with such a status.

    Raises RefusedError for another status, and ClusterError when the API server does not answer.
    """
    try:
        return call()
    except RefusedError as error:
        if error.status in statuses:
            return default
        raise


class _Request(NamedTuple):
    """A request; `action` describes it in errors, and `form` is the content type of the body."""

    action: str
    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: Object | None = None
    form: str = "application/json"

    @property
    def target(self) -> str:
        """The path with the query, without names that have no value."""
        query = urlencode({name: value for name, value in (self.query or {}).items() if value})
        return f"{self.path}?{query}" if query else self.path


class ApiClient:
    """A connection to an API server, and the namespace of its kubeconfig's context.

    `path` is a resource's, such as `api/v1/namespaces/team/pods`; `action` describes the request in
    errors: "list pods in namespace team". Each method raises ClusterError.
    """

    def __init__(
        self, connection: ApiConnection, timeout_seconds: float = READ_TIMEOUT_SECONDS
    ) -> None:
        self.namespace = connection.namespace
        self._timeout_seconds = timeout_seconds
        self._connection = connection
        self._use(connection.log_in())

    @staticmethod
    def connect(context: str | None = None) -> ApiClient:
        """Connect with a kubeconfig's context; without one, to the cluster that this runs in.

        Raises ClusterError when there is no such context, or its credentials cannot be read.
        """
        return ApiClient(find_connection(context))

    def _use(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._headers = urllib3.HTTPHeaderDict(credentials.headers)
        self._headers["User-Agent"] = f"hvdchart/{__version__}"
        self._pool = proxy_manager(
            self._connection.server,
            self._connection.proxy,
            ssl_context=_tls(self._connection, credentials),
            server_hostname=self._connection.server_name or None,
            socket_options=_SOCKET_OPTIONS,
        )

    def get(self, action: str, path: str, query: dict[str, str] | None = None) -> Object:
        return self._ask(_Request(action, "GET", path, query))

    def list(self, action: str, path: str, labels: str = "") -> list[Object]:
        """Return the objects of a list that match a label selector; all of them if it is empty."""
        answer = self.get(action, path, {"labelSelector": labels})
        with _wrap_errors(action):
            return [_object(item) for item in answer["items"] or ()]

    def create(self, action: str, path: str, body: Object) -> Object:
        return self._ask(_Request(action, "POST", path, body=body))

    def merge_patch(self, action: str, path: str, body: Object) -> Object:
        form = "application/merge-patch+json"
        return self._ask(_Request(action, "PATCH", path, body=body, form=form))

    def delete(self, action: str, path: str, query: dict[str, str] | None = None) -> Object:
        return self._ask(_Request(action, "DELETE", path, query))

    def watch(
        self, action: str, path: str, seconds: int, query: dict[str, str]
    ) -> Iterator[tuple[str, Object]]:
        """Return the existing objects, then changes, until the API server ends after `seconds`.

        Each object comes with the type of its change: ADDED, MODIFIED or DELETED.
        """
        query = {**query, "watch": "true", "timeoutSeconds": str(seconds)}
        response = self.lines(action, path, query, seconds + self._timeout_seconds)
        return _changes(action, response.lines)

    def lines(
        self,
        action: str,
        path: str,
        query: dict[str, str],
        read_seconds: float | None = None,
        *,
        has_end: bool = True,
    ) -> Lines:
        """Return the lines of a response as they come, without line ends.

        `read_seconds` limits the time between two parts of the response: a connection that broke
        silently would block forever. None: the time for a list or an object. A line of more than 16
        MiB comes in parts. Unless the content `has_end`, a last piece without a line end is left
        out: it is the beginning of a line.
        """
        request = _Request(action, "GET", path, query)
        response = self._send(request, read_seconds or self._timeout_seconds)
        with _wrap_errors(action):
            date = parsedate(response.headers.get("Date", ""))
            began = time.strftime("%Y-%m-%dT%H:%M:%SZ", date) if date else ""
        return Lines(_lines(action, response, has_end), began)

    def _ask(self, request: _Request) -> Object:
        """Return the object in the response to a request."""
        response = self._send(request, self._timeout_seconds)
        with _wrap_errors(request.action):
            return _object(json.loads(response.read()))

    def _send(self, request: _Request, read_seconds: float) -> urllib3.BaseHTTPResponse:
        """Return the response to a request; its content is not read yet.

        If the API server throttles the request, it is sent again when the server says, within the
        time for an object. Raises RefusedError for a redirect and any status but 2xx, and
        ClusterError without a response.
        """
        with _wrap_errors(request.action, drop_password(self._connection.server)):
            response = self._send_until_admitted(request, read_seconds)
            if response.status == HTTPStatus.UNAUTHORIZED:
                # The credentials may have expired.
                fresh = self._connection.log_in()
                if fresh != self._credentials:
                    self._use(fresh)
                    response.drain_conn()
                    response = self._send_until_admitted(request, read_seconds)
            _require_success(request.action, response)
        return response

    def _send_until_admitted(
        self, request: _Request, read_seconds: float
    ) -> urllib3.BaseHTTPResponse:
        give_up_at = time.monotonic() + self._timeout_seconds
        while True:
            response = self._send_once(request, read_seconds)
            pause = _pause_until_admitted(response)
            if pause is None or time.monotonic() + pause > give_up_at:
                return response
            response.drain_conn()
            time.sleep(pause)

    def _send_once(self, request: _Request, read_seconds: float) -> urllib3.BaseHTTPResponse:
        headers = self._headers.copy()
        headers["Content-Type"] = request.form
        headers["Accept"] = "application/json"
        return self._pool.request(
            request.method,
            f"{self._connection.server}/{request.target}",
            None if request.body is None else json.dumps(request.body),
            headers=headers,
            timeout=urllib3.Timeout(connect=self._timeout_seconds, read=read_seconds),
            preload_content=False,
            redirect=False,
            # Each repetition would wait for the whole limit again.
            retries=False,
        )


def _require_success(action: str, response: urllib3.BaseHTTPResponse) -> None:
    """Raise RefusedError for a redirect and any status but 2xx."""
    location = response.get_redirect_location()
    if location:
        # After a redirect, another server would get the credentials, and could imitate the
        # cluster's.
        server = one_line(drop_password(location).partition("?")[0])
        raise RefusedError(
            f"cannot {action}: the API server redirects to {server} (HTTP {response.status}); if "
            "that is your cluster's, put it into clusters[].cluster.server of the kubeconfig",
            response.status,
        )
    if not 200 <= response.status <= 299:
        try:
            message = json.loads(response.read())["message"]
        except (TypeError, ValueError, KeyError, RecursionError):
            message = response.reason
        reason = _reason(response.status, message)
        raise RefusedError(f"cannot {action}: {reason}", response.status)


def _pause_until_admitted(response: urllib3.BaseHTTPResponse) -> float | None:
    """Return the seconds after which a throttled client should ask again; None for any other.

    The API server has not begun with a request that it throttles.
    """
    seconds = response.headers.get("Retry-After", "")
    if response.status != HTTPStatus.TOO_MANY_REQUESTS or not seconds.isdecimal():
        return None
    # A number with any digits: a float of it may be infinite.
    return max(1.0, float(seconds))


def _changes(action: str, lines: Iterable[str]) -> Iterator[tuple[str, Object]]:
    """Yield the types and objects of the changes in the lines of a watch."""
    for line in lines:
        with _wrap_errors(action):
            event = json.loads(line)
            kind = event["type"]
            changed = _object(event["object"])
        if kind == "ERROR":
            code = int(changed.get("code", 0))
            raise RefusedError(f"cannot {action}: {_reason(code, changed.get('message'))}", code)
        yield kind, changed


def _lines(action: str, response: urllib3.BaseHTTPResponse, has_end: bool) -> Iterator[str]:
    """Yield the lines of a response, and close it."""
    with _wrap_errors(action):
        try:
            chunks = response.stream(decode_content=False)
            yield from (line.decode("utf-8", "replace") for line in _split(chunks, has_end))
        finally:
            response.close()


def _split(chunks: Iterable[bytes], has_end: bool) -> Iterator[bytes]:
    """Yield the lines of a stream of bytes, without line ends; split a line that is too long.

    Each byte is scanned once, even in a long line. Without `has_end`, leave out a last piece
    without a line end.
    """
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if not others and size <= MAX_LINE_BYTES:
            continue
        yield b"".join(parts)
        yield from others[:-1]
        parts = others[-1:]
        size = sum(map(len, parts))
    if has_end and any(parts):
        yield b"".join(parts)


def _tls(connection: ApiConnection, credentials: Credentials) -> ssl.SSLContext:
    """Return the TLS settings. Raises ClusterError for certificates that cannot be used."""
    try:
        context = ssl.create_default_context(cadata=connection.authorities or None)
        # Newer versions of Python refuse authorities that kubectl and older versions accept.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not connection.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if credentials.certificate:
            # Python loads a certificate and its key from a file only.
            with NamedTemporaryFile() as file:
                file.write(credentials.certificate + b"\n" + credentials.key)
                file.flush()
                # Without a password, OpenSSL would prompt for that of an encrypted key.
                context.load_cert_chain(file.name, password="")
    except (ssl.SSLError, ValueError) as error:
        server = drop_password(connection.server)
        raise ClusterError(
            f"the kubeconfig's certificates for {server} cannot be used: {error}"
        ) from error
    return context


def _object(answer: Any) -> Object:
    """Return the response if it is a JSON object; raise TypeError for anything else."""
    if not isinstance(answer, dict):
        raise TypeError(str(answer)[:80])
    return answer


@contextmanager
def _wrap_errors(action: str, server: str = "") -> Iterator[None]:
    """Raise ClusterError for a failed connection, and for an invalid response."""
    try:
        yield
    except (HTTPError, OSError) as error:
        reason = _OF_LIBRARY.sub("", str(error))
        text = f"cannot {action}: the API server{server and ' '}{server} does not answer: {reason}"
        raise ClusterError(f"{text}; check the kubeconfig's context and the network") from error
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        reason = one_line(str(error))
        raise ClusterError(
            f"cannot {action}: the answer is not Kubernetes' own: {reason}"
        ) from error


def _reason(status: int, message: Any) -> str:
    """Explain why the API server refuses a request, and what to do if that is known."""
    message = one_line(str(message), _MAX_REFUSAL_CHARACTERS)
    if status == 401:
        return (
            f"the API server does not accept your credentials ({message}); renew those in the "
            "kubeconfig"
        )
    if status == HTTPStatus.FORBIDDEN:
        return f"you are not allowed to ({message}); ask for a role with that permission"
    return f"{message} (HTTP {status})"
