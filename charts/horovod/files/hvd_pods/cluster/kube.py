"""The calls to the Kubernetes API that the master makes, with its service account's token.

Any call can fail: the API server restarts, is upgraded, or asks to be called later. Reads, patches
and deletions have the same result when they are made twice, so they are repeated while the failure
may be temporary. `retry_seconds` shortens that for callers that can continue without the response.
"""

from __future__ import annotations

import json
import os
import random
import ssl
import time
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Callable, Iterator, NamedTuple, Protocol
from urllib.parse import urlencode

from hvd_pods.pod.reporting import log
from hvd_pods.shared.objects import Object
from hvd_pods.shared.untrusted import one_line

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# A silent API server is given a tenth longer for a watch.
WATCH_SILENCE_FACTOR = 1.1
# Seconds for which calls are repeated once this pod was asked to end: by default, the kubelet
# kills it 30 s after that.
STOP_RETRY_SECONDS = 10.0
# After a call was given up, calls are not repeated for this many seconds.
RETRY_PAUSE_SECONDS = 60.0
# Characters of an error: a proxy before the API server may answer with a page.
MAX_API_MESSAGE_CHARACTERS = 1500
# The `status` of an ApiError that has no HTTP status.
NO_HTTP_STATUS = 0
# The status codes of a server, or of a proxy before it, while it starts, ends or is overloaded. 401
# is included because the server reads the service account to verify a token, which may fail as
# well.
TEMPORARY = (NO_HTTP_STATUS, 401, 408, 429, 500, 502, 503, 504)


class CallLimits(NamedTuple):
    """How long calls take and are repeated, in seconds, and how much a list returns."""

    # Without a byte from the API server until an attempt fails.
    silence_timeout_seconds: float = 10.0
    # Until the API server ends a watch.
    watch_seconds: float = 60
    # No call is repeated for longer: the upgrade of a control plane without replicas takes minutes.
    # No pod can report its end during that time anyway.
    retry_seconds: float = 900.0
    # Between two attempts: the first pause, and the longest one.
    first_delay_seconds: float = 0.2
    longest_delay_seconds: float = 10.0
    # Items that a list returns at once.
    page: int = 500


DEFAULT_CALL_LIMITS = CallLimits()


class Clock(Protocol):
    """The part of the module `time` that calls use."""

    def monotonic(self) -> float:
        """Return the seconds on a clock that is never set back."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


class ApiRequest(NamedTuple):
    """A request to the API server; `path` is relative to the namespace: `core/pods/NAME`."""

    method: str
    path: str
    query: dict[str, str] | None = None
    body: Object | None = None
    content_type: str = "application/json"


class ApiError(Exception):
    """A call to the API failed.

    `status` is the HTTP status, or NO_HTTP_STATUS when the API server could not be reached, or its
    response was cut or has another form than the API's. `retry_after_seconds`: the pause that the
    server requests.
    """

    def __init__(self, status: int, message: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message if status == NO_HTTP_STATUS else f"{status}: {message}")
        self.status = status
        self.retry_after_seconds = retry_after_seconds

    @property
    def is_temporary(self) -> bool:
        """Whether the call may succeed when it is repeated later.

        Repetition does not help if the token's file is missing or the certificate is not valid.
        """
        return self.status in TEMPORARY and not isinstance(
            self.__cause__, (FileNotFoundError, ssl.SSLCertVerificationError)
        )


def make_pauses(first: float, longest: float) -> Iterator[float]:
    """Yield seconds to wait before each further attempt, without end.

    The pause is doubled each time, up to `longest`. Each yielded value is a random part of the
    pause, between a half and the whole: masters that lost the same API server would otherwise all
    reconnect at the same moment.
    """
    pause = first
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311
        pause = min(pause * 2, longest)


class Api:
    """One namespace of the API server that this pod runs under. Each method raises ApiError.

    `is_stopped` returns whether this pod was asked to end. `is_away`: the last call was given up.

    A method's `path` is relative to the namespace: `core/pods/NAME`. `retry_seconds` is the time
    for which the call is repeated while its failure may be temporary: 0 for one attempt only, None
    for as long as the limits allow, which is never exceeded. `timeout` is the number of seconds
    without a byte after which an attempt fails: None for the one of the limits.
    """

    def __init__(self, limits: CallLimits = DEFAULT_CALL_LIMITS, clock: Clock = time) -> None:
        self._limits = limits
        self._clock = clock
        self.is_stopped: Callable[[], bool] = lambda: False
        self.is_away = False
        self._stopped_at: float | None = None
        self._gave_up_at = -RETRY_PAUSE_SECONDS
        self._host = os.environ["KUBERNETES_SERVICE_HOST"]
        self._port = int(os.environ["KUBERNETES_SERVICE_PORT"])
        self._tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        # Strict verification is the default from Python 3.13 on. It needs extensions that the
        # certificates of many clusters lack, such as the issuer's key identifier. Chain, name and
        # dates are verified without it, too.
        self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self.namespace = (ACCOUNT / "namespace").read_text().strip()

    def get(
        self, path: str, retry_seconds: float | None = None, timeout: float | None = None
    ) -> Object:
        """Read an object."""
        return self._call(ApiRequest("GET", path), retry_seconds, timeout)

    def list_all(
        self,
        path: str,
        query: dict[str, str],
        retry_seconds: float | None = None,
        timeout: float | None = None,
    ) -> tuple[list[Object], str]:
        """Read all objects that the query selects, and the version to watch them from."""
        items: list[Object] = []
        query = {**query, "limit": str(self._limits.page)}
        while True:
            page = self._call(ApiRequest("GET", path, query), retry_seconds, timeout)
            items += page.get("items", [])
            metadata = page["metadata"]
            if "resourceVersion" not in metadata:
                raise ApiError(NO_HTTP_STATUS, f"the response to GET {path} is not a list")
            following = metadata.get("continue")
            if not following:
                return items, str(metadata["resourceVersion"])
            query["continue"] = following

    def delete(
        self,
        path: str,
        uid: str = "",
        retry_seconds: float | None = None,
        grace_period_seconds: int | None = None,
    ) -> Object:
        """Delete the object if it still has this UID: another one may have its name by now.

        Without a UID, any object of this name is deleted. With another UID than the object's, the
        ApiError has the status 409. With a `grace_period_seconds` of 0, a pod is removed at once,
        without a confirmation of its node.
        """
        body: Object = {"preconditions": {"uid": uid}} if uid else {}
        if grace_period_seconds is not None:
            body["gracePeriodSeconds"] = grace_period_seconds
        return self._call(ApiRequest("DELETE", path, body=body), retry_seconds)

    def merge_patch(self, path: str, body: Object, retry_seconds: float | None = None) -> Object:
        """Change some fields of an object; those that are null in `body` are removed."""
        kind = "application/merge-patch+json"
        return self._call(ApiRequest("PATCH", path, None, body, kind), retry_seconds)

    def apply(self, path: str, body: Object, retry_seconds: float | None = None) -> Object:
        """Create an object if there is none of this name, else give it these fields, too.

        Unlike in `create`, the name is a part of the request: a Role can restrict requests to it.
        """
        kind = "application/apply-patch+yaml"
        query = {"fieldManager": "horovod", "force": "true"}
        return self._call(ApiRequest("PATCH", path, query, body, kind), retry_seconds)

    def create(self, path: str, body: Object, retry_seconds: float | None = None) -> Object:
        """Create an object of this name. When the call was repeated, 409 may mean success."""
        return self._call(ApiRequest("POST", path, body=body), retry_seconds)

    def watch(self, path: str, query: dict[str, str]) -> Iterator[Object]:
        """Yield watch events until the server ends the stream, after `timeoutSeconds` at most.

        It is not repeated: only a new list contains the changes in between.
        """
        query = {"timeoutSeconds": str(self._limits.watch_seconds), **query, "watch": "1"}
        timeout = float(query["timeoutSeconds"]) * WATCH_SILENCE_FACTOR
        with self._send(ApiRequest("GET", path, query), timeout) as response:
            for line in response:
                yield _parse(line, "object")

    def _call(
        self, request: ApiRequest, retry_seconds: float | None, timeout: float | None = None
    ) -> Object:
        """Make a call, and repeat it for `retry_seconds` while the failure may be temporary.

        Without `retry_seconds`, a call is repeated as long as the limits allow. After a call that
        was given up, the next calls are not repeated, so that each call of a series does not take
        that long.
        """
        began = self._clock.monotonic()
        shares = retry_seconds is None
        most = self._limits.retry_seconds
        if retry_seconds is None:
            retry_seconds = most if began - self._gave_up_at > RETRY_PAUSE_SECONDS else 0.0
        until = began + min(retry_seconds, most)
        is_logged = False
        for pause in make_pauses(
            self._limits.first_delay_seconds, self._limits.longest_delay_seconds
        ):
            try:
                with self._send(request, timeout) as response:
                    answer = _parse(response.read())
                    self.is_away = False
                    return answer
            except ApiError as problem:
                if not problem.is_temporary:
                    self.is_away = False
                    raise
                if not self._wait(max(pause, problem.retry_after_seconds), until):
                    self.is_away = True
                    if shares:
                        self._gave_up_at = self._clock.monotonic()
                    raise
                if not is_logged:
                    log(f"{problem}: trying again")
                    is_logged = True
        raise AssertionError("the pauses do not end")

    def _wait(self, pause: float, until: float) -> bool:
        """Wait `pause` seconds before another attempt; False when there is no time for one.

        There is no time left after `until`, by the clock, or more than STOP_RETRY_SECONDS
        after this pod was asked to end. A pause is cut to a second when that happens.
        """
        now = self._clock.monotonic()
        wake_at = now + pause
        while True:
            if self.is_stopped():
                if self._stopped_at is None:
                    self._stopped_at = now
                until = min(until, self._stopped_at + STOP_RETRY_SECONDS)
                wake_at = min(wake_at, now + 1.0)
            if wake_at > until:
                return False
            if now >= wake_at:
                return True
            # A request to end wakes no thread.
            self._clock.sleep(min(0.5, wake_at - now))
            now = self._clock.monotonic()

    @contextmanager
    def _send(self, request: ApiRequest, timeout: float | None) -> Iterator[HTTPResponse]:
        """Send a request and yield the response. Every call goes through here.

        Each failure, also while the response is read, is raised as ApiError: a caller that can
        continue without a response catches only that.
        """
        limit = timeout or self._limits.silence_timeout_seconds
        connection = HTTPSConnection(self._host, self._port, timeout=limit, context=self._tls)
        try:
            headers = {
                # Read for each request: the kubelet replaces the token before it expires.
                "Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}",
                "Accept": "application/json",
                "Content-Type": request.content_type,
            }
            content = json.dumps(request.body) if request.body else None
            connection.request(request.method, self._url(request), content, headers)
            response = connection.getresponse()
            if response.status >= 400:
                text = response.read().decode(errors="replace")
                after = response.headers.get("Retry-After", "")
                seconds = float(after) if after.isdecimal() else 0.0
                raise ApiError(response.status, _status_message(text), seconds)
            yield response
        # A cut response is an HTTPException and not an OSError. Cut JSON is a ValueError.
        except (OSError, HTTPException, ValueError, RecursionError) as problem:
            cause = f"{type(problem).__name__}: {problem}"
            target = f"{request.method} {request.path}"
            message = f"no complete response from the API server to {target} ({cause})"
            raise ApiError(NO_HTTP_STATUS, message) from problem
        finally:
            connection.close()

    def _url(self, request: ApiRequest) -> str:
        group, _, rest = request.path.partition("/")
        root = "/api/v1" if group == "core" else f"/apis/{group}/v1"
        url = f"{root}/namespaces/{self.namespace}/{rest}"
        return f"{url}?{urlencode(request.query)}" if request.query else url


def _parse(text: bytes, field: str = "metadata") -> Object:
    """Parse an object that has this field: null means that a field is missing.

    Raises ValueError for anything else.
    """

    def without_nulls(item: Object) -> Object:
        return {name: value for name, value in item.items() if value is not None}

    value = json.loads(text, object_hook=without_nulls)
    document: Object = value if isinstance(value, dict) else {}
    if type(document.get(field)) is not dict:
        raise ValueError(f"it is no object with {field}")
    return document


def _status_message(text: str) -> str:
    """Return the message of a Status object, or the text itself when it is not a Status.

    It is one line of at most MAX_API_MESSAGE_CHARACTERS.
    """
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        text = str(json.loads(text)["message"])
    return one_line(text, MAX_API_MESSAGE_CHARACTERS)
