"""An API server for tests: HTTP or HTTPS on loopback, and objects in memory."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.fakes import faults
from tests.support.fakes.faults import TIMEOUT, Failure, Object, status_object
from tests.support.fakes.request import Request, read_request
from tests.support.fakes.server import Api, Handler

# A PATCH with this content type creates the object if there is none.
APPLY = "application/apply-patch+yaml"


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


class FakeApi(Api):
    """The objects of a cluster. Names are unique: the server stores them without their namespaces.

    A resource is named with or without its group: `core/pods` or `pods`. `fail` makes the next
    requests to a path fail; `end_watches` ends the open watches. With a `namespace`, a request to
    another namespace is an error of the test.
    """

    def __init__(self, namespace: str = "") -> None:
        super().__init__()
        self.requests: list[Request] = []
        # The status of objects that clients create.
        self.created_status: Object = {}
        self._namespace = namespace
        self._objects: dict[str, dict[str, Object]] = {}
        self._failures: list[tuple[str, str, Failure]] = []
        self._watches: list[Watch] = []
        self._history: list[tuple[int, str, str, Object]] = []
        self._version = 1
        self._oldest = 0
        # Reentrant: `put` notifies within `answer`.
        self._changed = threading.Condition()

    def stop(self) -> None:
        super().stop()
        self.end_watches()

    # Changes that a test makes to the cluster.

    def put(self, resource: str, *items: Object) -> None:
        resource = _plain(resource)
        with self._changed:
            for item in items:
                name = item["metadata"]["name"]
                if resource == "configmaps":
                    # Only these objects are changed with the precondition that no other client
                    # changed them.
                    version = {"resourceVersion": str(self._version + 1)}
                    item = {**item, "metadata": {**item["metadata"], **version}}  # noqa: PLW2901
                objects = self._objects.setdefault(resource, {})
                kind = "MODIFIED" if name in objects else "ADDED"
                objects[name] = item
                self._record(kind, resource, item)

    def remove(self, resource: str, name: str) -> None:
        resource = _plain(resource)
        with self._changed:
            self._record("DELETED", resource, self._objects[resource].pop(name))

    def find(self, resource: str, name: str) -> Object | None:
        with self._changed:
            return self._objects.get(_plain(resource), {}).get(name)

    def items(self, resource: str) -> list[Object]:
        """Return all objects of a resource, in the order of creation."""
        with self._changed:
            return list(self._objects.get(_plain(resource), {}).values())

    def fail(self, method: str, path: str, failure: Failure, times: int = 1) -> None:
        """Make the next requests with this method to paths that begin with `path` fail."""
        with self._changed:
            self._failures += [(method, path, failure)] * times

    def end_watches(self, failure: Failure | None = None) -> None:
        """End the open watches, as the server does after a while, or with a failure."""
        with self._changed:
            for watch in self._watches:
                watch.items.put(failure or faults.end)
            self._changed.notify_all()

    def expire(self) -> None:
        """Forget the history: a watch from an older version gets the error 410 Gone."""
        with self._changed:
            self._oldest = self._version
            for watch in self._watches:
                _push_gone(watch)

    # Events that a test waits for.

    def wait(self, condition: Callable[[], bool], seconds: float = TIMEOUT) -> None:
        """Wait until a condition on objects or requests holds."""
        with self._changed:
            assert self._changed.wait_for(condition, seconds), self.requests

    def wait_for_watch(self, resource: str, number: int = 1) -> None:
        """Wait until a resource has been watched `number` times and is watched now."""
        self.wait(
            lambda: (
                sum(
                    request.path == resource and "watch" in request.query
                    for request in self.requests
                )
                >= number
                and bool(self.watches(resource))
            )
        )

    def watches(self, resource: str) -> list[Watch]:
        return [watch for watch in self._watches if watch.resource == _plain(resource)]

    def asked(self, method: str, path: str) -> list[Request]:
        """Return the requests with this method to this path."""
        return [item for item in self.requests if (item.method, item.path) == (method, path)]

    # The server's side.

    def answer(self, handler: Handler) -> None:
        request = read_request(handler)
        assert not self._namespace or self._namespace == request.namespace, request
        with self._changed:
            self.requests.append(request)
            answer = self._own_answer(request)
            is_watch = answer is None and request.verb == "watch"
            watch = self._open_watch(request) if is_watch else None
            self._changed.notify_all()
        if answer:
            answer(handler)
        elif watch:
            self._stream(handler, watch)
        else:
            with self._changed:
                code, document = self._handle(request)
                self._changed.notify_all()
            handler.send_json(code, document)

    def _own_answer(self, request: Request) -> Failure | None:
        """Return the response that replaces the one from the objects."""
        for entry in self._failures:
            if request.method == entry[0] and request.path.startswith(entry[1]):
                self._failures.remove(entry)
                return entry[2]
        return None

    def _handle(self, request: Request) -> tuple[int, Object]:
        resource = request.resource
        if resource == "version":
            return 200, {"gitVersion": "v1.34.4"}
        if request.method == "POST":
            return self._create(resource, request.body)
        objects = self._objects.get(resource, {})
        if not request.name:
            items = [item for item in objects.values() if _is_selected(item, request.query)]
            metadata = {"resourceVersion": str(self._version)}
            end = int(request.query.get("continue", 0)) + int(request.query.get("limit", 10**6))
            if end < len(items):
                metadata["continue"] = str(end)
            items = items[int(request.query.get("continue", 0)) : end]
            return 200, {"metadata": metadata, "items": items}
        item = objects.get(request.name)
        if request.headers.get("Content-Type") == APPLY:
            self.put(resource, _merge(item or {}, request.body))
            return 200 if item else 201, self._objects[resource][request.name]
        if item is None:
            return status_object(404, f'{resource} "{request.name}" not found')
        if request.method == "DELETE":
            wanted = (request.body or {}).get("preconditions", {}).get("uid")
            if wanted and wanted != item["metadata"].get("uid"):
                return status_object(409, "the UID in the precondition does not match")
            self.remove(resource, request.name)
        elif request.method == "PATCH":
            assert request.headers["Content-Type"] == "application/merge-patch+json"
            expected = request.body.get("metadata", {}).get("resourceVersion")
            if expected not in (None, item["metadata"].get("resourceVersion")):
                return status_object(409, "the object has been modified")
            self.put(resource, _merge(item, request.body))
            item = self._objects[resource][request.name]
        # The scale subresource has the same spec.replicas as the object.
        if request.part:
            replicas = {"replicas": item["spec"]["replicas"]}
            return 200, {"metadata": item["metadata"], "spec": replicas}
        return 200, item

    def _create(self, resource: str, body: Object) -> tuple[int, Object]:
        metadata = body.get("metadata", {})
        name = metadata.get("name") or metadata.get("generateName", "") + "x1"
        if "name" in metadata and self.find(resource, name):
            return status_object(409, f"{name} already exists")
        metadata = {"uid": f"uid-{self._version}", **metadata, "name": name}
        item = {**body, "metadata": metadata, "status": self.created_status}
        self.put(resource, item)
        return 201, item

    def _record(self, kind: str, resource: str, item: Object) -> None:
        self._version += 1
        self._history.append((self._version, kind, resource, item))
        for watch in self.watches(resource):
            watch.push(kind, item)
        self._changed.notify_all()

    def _open_watch(self, request: Request) -> Watch:
        watch = Watch(request.resource, request.query)
        since = int(request.query.get("resourceVersion", self._version))
        if since < self._oldest:
            _push_gone(watch)
        if "resourceVersion" not in request.query:
            for item in self.items(watch.resource):
                watch.push("ADDED", item)
        for version, kind, resource, item in self._history:
            if version > since and resource == watch.resource:
                watch.push(kind, item)
        if self.closed.is_set():
            watch.items.put(faults.end)
        self._watches.append(watch)
        return watch

    def _stream(self, handler: Handler, watch: Watch) -> None:
        try:
            handler.start_chunks()
            while isinstance(item := watch.items.get(), bytes):
                handler.send_chunk(item)
            item(handler)
        finally:
            with self._changed:
                self._watches.remove(watch)
                self._changed.notify_all()


def _plain(resource: str) -> str:
    """`core/pods` -> `pods`."""
    return resource.rpartition("/")[2]


def _push_gone(watch: Watch) -> None:
    gone = status_object(410, "too old resource version")[1]
    watch.items.put(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
    watch.items.put(faults.end)


def _is_selected(item: Object, query: Mapping[str, str]) -> bool:
    labels = item["metadata"].get("labels") or {}
    for selector in filter(None, query.get("labelSelector", "").split(",")):
        name, _, value = selector.partition("=")
        if labels.get(name) != value:
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
