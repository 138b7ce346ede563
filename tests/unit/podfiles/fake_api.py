"""An API server for tests: HTTPS on loopback, and objects in memory."""

from __future__ import annotations

import contextlib
import json
import queue
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.unit.podfiles import faults
from tests.unit.podfiles.fake_https import Certificates, Handler, HttpsServer
from tests.unit.podfiles.faults import PATIENCE, Failure, Object, status_object

NAMESPACE, TOKEN = "team", "secret"


@dataclass(frozen=True)
class Request:
    """A request: `path` is below the namespace, as in kube.Api: `core/pods/NAME`."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: Mapping[str, str]


@dataclass(eq=False)
class Watch:
    """An open stream. Items are bytes to send as one chunk; a failure ends the stream."""

    resource: str
    query: Mapping[str, str]
    items: queue.Queue[bytes | Failure] = field(default_factory=queue.Queue)

    def push(self, kind: str, item: Object) -> None:
        """Send an event if the watch selects the object."""
        if _is_selected(item, self.query):
            self.items.put(json.dumps({"type": kind, "object": item}).encode() + b"\n")


class FakeApi:
    """The objects of one namespace, and the server that answers for them.

    `fail` makes the next requests to a path fail; `end_watches` ends the open watches.
    """

    def __init__(self, certificate: Path, key: Path, address: str = "127.0.0.1") -> None:
        self.requests: list[Request] = []
        self.errors: list[BaseException] = []
        self._objects: dict[str, dict[str, Object]] = {}
        self._failures: list[tuple[str, str, Failure]] = []
        self._watches: list[Watch] = []
        self._history: list[tuple[int, str, str, Object]] = []
        self._version, self._oldest = 1, 0
        self._changed = threading.Condition()
        self.closed = threading.Event()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        self._server = HttpsServer(self, address, tls)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.002,), daemon=True).start()

    def close(self) -> None:
        """End the watches and the server. Raises what went wrong inside it."""
        self.closed.set()
        self.end_watches()
        self._server.shutdown()
        self._server.server_close()
        if self.errors:
            raise self.errors[0]

    # What a test does to the cluster.

    def put(self, resource: str, item: Object) -> None:
        """Create or replace an object; `resource` is as in `core/pods`."""
        name = item["metadata"]["name"]
        with self._changed:
            if resource == "core/configmaps":
                # The only objects that are changed under the condition that nobody else did.
                version = {"resourceVersion": str(self._version + 1)}
                item = {**item, "metadata": {**item["metadata"], **version}}
            objects = self._objects.setdefault(resource, {})
            self._record("MODIFIED" if name in objects else "ADDED", resource, item)
            objects[name] = item

    def remove(self, resource: str, name: str) -> None:
        """Delete an object."""
        with self._changed:
            self._record("DELETED", resource, self._objects[resource].pop(name))

    def find(self, resource: str, name: str) -> Object | None:
        """Return an object, or None."""
        with self._changed:
            return self._objects.get(resource, {}).get(name)

    def items(self, resource: str) -> list[Object]:
        """Return all objects of a resource, in the order of creation."""
        with self._changed:
            return list(self._objects.get(resource, {}).values())

    def fail(self, method: str, path: str, failure: Failure, times: int = 1) -> None:
        """Make the next requests with this method to paths that begin with `path` fail."""
        with self._changed:
            self._failures += [(method, path, failure)] * times

    def end_watches(self, failure: Failure | None = None) -> None:
        """End the open watches, as the server does after a while, or with a failure."""
        with self._changed:
            for watch in self._watches:
                watch.items.put(failure or faults.end)

    def expire(self) -> None:
        """Forget the history: a watch from an older version gets the error 410 Gone."""
        with self._changed:
            self._oldest = self._version
            for watch in self._watches:
                _push_gone(watch)

    # What a test waits for.

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on objects or requests holds."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE), self.requests

    def wait_for_watch(self, resource: str, number: int = 1) -> None:
        """Wait until a resource has been watched `number` times and is watched now."""
        self.wait(
            lambda: (
                sum(r.path == resource and "watch" in r.query for r in self.requests) >= number
                and bool(self.watches(resource))
            )
        )

    def watches(self, resource: str) -> list[Watch]:
        """Return the open watches of a resource."""
        return [watch for watch in self._watches if watch.resource == resource]

    def asked(self, method: str, path: str) -> list[Request]:
        """Return the requests with this method to this path."""
        return [item for item in self.requests if (item.method, item.path) == (method, path)]

    # The server's side.

    def answer(self, handler: Handler) -> None:
        """Answer one request."""
        url = urlsplit(handler.path)
        length = int(handler.headers.get("Content-Length") or 0)
        body = json.loads(handler.rfile.read(length)) if length else None
        path = _path_below_namespace(url.path)
        request = Request(
            handler.command, path, dict(parse_qsl(url.query)), body, dict(handler.headers)
        )
        with self._changed:
            self.requests.append(request)
            failure = self._next_failure(request)
            self._changed.notify_all()
        if failure:
            failure(handler)
        elif "watch" in request.query:
            self._stream(handler, request)
        else:
            with self._changed:
                code, answer = self._handle(request)
                self._changed.notify_all()
            handler.send_json(code, answer)

    def _next_failure(self, request: Request) -> Failure | None:
        for entry in self._failures:
            if request.method == entry[0] and request.path.startswith(entry[1]):
                self._failures.remove(entry)
                return entry[2]
        return None

    def _handle(self, request: Request) -> tuple[int, Object]:
        group, resource, *rest = request.path.split("/")
        resource = f"{group}/{resource}"
        objects = self._objects.setdefault(resource, {})
        if request.method == "POST":
            name = request.body["metadata"]["name"]
            if name in objects:
                return status_object(409, f"{name} already exists")
            self.put(resource, request.body)
            return 201, request.body
        if not rest:
            items = [item for item in objects.values() if _is_selected(item, request.query)]
            metadata = {"resourceVersion": str(self._version)}
            end = int(request.query.get("continue", 0)) + int(request.query.get("limit", 10**6))
            if end < len(items):
                metadata["continue"] = str(end)
            items = items[int(request.query.get("continue", 0)) : end]
            return 200, {"metadata": metadata, "items": items}
        item = objects.get(rest[0])
        if item is None:
            return status_object(404, f"{request.path} not found")
        if request.method == "DELETE":
            wanted = (request.body or {}).get("preconditions", {}).get("uid")
            if wanted and wanted != item["metadata"].get("uid"):
                return status_object(409, "the UID in the precondition does not match")
            self.remove(resource, rest[0])
        elif request.method == "PATCH":
            assert request.headers["Content-Type"] == "application/merge-patch+json"
            expected = request.body.get("metadata", {}).get("resourceVersion")
            if expected not in (None, item["metadata"].get("resourceVersion")):
                return status_object(409, "the object has been modified")
            item = _merge(item, request.body)
            self.put(resource, item)
        # Of the scale subresource, spec.replicas is what the object itself has, too.
        return 200, {"spec": {"replicas": item["spec"]["replicas"]}} if rest[1:] else item

    def _record(self, kind: str, resource: str, item: Object) -> None:
        self._version += 1
        self._history.append((self._version, kind, resource, item))
        for watch in self._watches:
            if watch.resource == resource:
                watch.push(kind, item)
        self._changed.notify_all()

    def _stream(self, handler: Handler, request: Request) -> None:
        watch = Watch(request.path, request.query)
        with self._changed:
            since = int(request.query.get("resourceVersion", self._version))
            if since < self._oldest:
                _push_gone(watch)
            if "resourceVersion" not in request.query:
                for item in self._objects.get(request.path, {}).values():
                    watch.push("ADDED", item)
            for version, kind, resource, item in self._history:
                if version > since and resource == request.path:
                    watch.push(kind, item)
            if self.closed.is_set():
                watch.items.put(faults.end)
            self._watches.append(watch)
            self._changed.notify_all()
        handler.start_chunks()
        try:
            while True:
                item_or_failure = watch.items.get()
                if not isinstance(item_or_failure, bytes):
                    item_or_failure(handler)
                    return
                handler.send_chunk(item_or_failure)
        finally:
            with self._changed:
                self._watches.remove(watch)
                self._changed.notify_all()


def _push_gone(watch: Watch) -> None:
    gone = status_object(410, "too old resource version")[1]
    watch.items.put(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
    watch.items.put(faults.end)


def _path_below_namespace(path: str) -> str:
    """`/api/v1/namespaces/team/pods/a` -> `core/pods/a`."""
    root, _, rest = path.partition(f"/namespaces/{NAMESPACE}/")
    group = {"/api/v1": "core"}.get(root) or root.removeprefix("/apis/").removesuffix("/v1")
    assert rest, path
    return f"{group}/{rest}"


def _is_selected(item: Object, query: Mapping[str, str]) -> bool:
    labels = item["metadata"].get("labels", {})
    wanted = dict(parse_qsl(query.get("labelSelector", "").replace(",", "&")))
    if any(labels.get(name) != value for name, value in wanted.items()):
        return False
    for selector in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = selector.partition("=")
        current: Any = item
        for step in path.split("."):
            current = current.get(step, {})
        if current != value:
            return False
    return True


def _merge(item: Object, patch: Object) -> Object:
    merged = dict(item)
    for key, value in patch.items():
        merged[key] = _merge(item.get(key) or {}, value) if isinstance(value, dict) else value
    return merged


@contextlib.contextmanager
def serve(certificates: Certificates, account: Path, address: str) -> Iterator[FakeApi]:
    """Run an API server and write the service account's folder of a pod that may use it."""
    files = {"ca.crt": certificates.authority, "namespace": NAMESPACE.encode() + b"\n"}
    for name, content in {**files, "token": TOKEN.encode() + b"\n"}.items():
        (account / name).write_bytes(content)
    api = FakeApi(certificates.certificate, certificates.key, address)
    try:
        yield api
    finally:
        api.close()
