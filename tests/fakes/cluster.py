"""A small API server over plain HTTP: lists, watches, logs, pods; and a kubeconfig for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Object = dict[str, Any]


@dataclass
class Request:
    """One request that the server got."""

    method: str
    path: str
    query: dict[str, str]
    body: Any = None
    # How often watches had been ended when it came: a watch that starts after that ends at once.
    generation: int = 0

    @property
    def resource(self) -> str:
        """pods, jobs, log and the like; podmetrics for what the metrics API has of pods."""
        if self.path.startswith("/apis/metrics.k8s.io/"):
            return "podmetrics"
        parts = self.path.strip("/").split("/")
        start = parts.index("namespaces") + 2 if "namespaces" in parts else len(parts) - 1
        if start >= len(parts):
            return "namespaces"
        return parts[-1] if parts[-1] == "log" else parts[start]


@dataclass
class _Log:
    lines: list[str] = field(default_factory=list)
    ended: bool = False


class FakeCluster:
    """The objects of one cluster. Tests change them while clients watch."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        # What to answer instead: status and message by resource and verb, such as "pods list".
        self.refusals: dict[str, tuple[int, str]] = {}
        # The status of objects that clients create.
        self.created_status: Object = {}
        self._objects: dict[str, dict[str, Object]] = {}
        self._changes: list[tuple[str, str, Object]] = []
        self._logs: dict[str, _Log] = {}
        # Reentrant, which `find` within `watch` needs.
        self._changed = threading.Condition()
        self._stopped = False
        self._generation = 0
        self._held: set[str] = set()

    def put(self, resource: str, *objects: Object) -> None:
        """Create or update objects, and tell the watches."""
        with self._changed:
            known = self._objects.setdefault(resource, {})
            for item in objects:
                name = item["metadata"]["name"]
                kind = "MODIFIED" if name in known else "ADDED"
                known[name] = item
                self._changes.append((resource, kind, item))
            self._changed.notify_all()

    def remove(self, resource: str, name: str) -> None:
        """Delete an object, and tell the watches."""
        with self._changed:
            self._changes.append((resource, "DELETED", self._objects[resource].pop(name)))
            self._changed.notify_all()

    def names(self, resource: str) -> list[str]:
        """The names of the objects of a resource."""
        return list(self._objects.get(resource, {}))

    def log(self, pod: str, *lines: str, end: bool = False) -> None:
        """Add lines to a pod's log; `end`: its container has ended."""
        with self._changed:
            log = self._logs.setdefault(pod, _Log())
            log.lines += lines
            log.ended |= end
            self._changed.notify_all()

    def wait_for(self, resource: str, verb: str, seconds: float = 10) -> Request:
        """Wait until a request of this kind has come, and return the first."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._first(resource, verb), seconds)
            request = self._first(resource, verb)
            assert request is not None
            return request

    def wait_for_number(self, resource: str, verb: str, number: int, seconds: float = 10) -> None:
        """Wait until so many requests of this kind have come."""

        def count() -> int:
            return sum(1 for r in self.requests if (r.resource, _verb(r)) == (resource, verb))

        with self._changed:
            assert self._changed.wait_for(lambda: count() >= number, seconds)

    def end_watches(self) -> None:
        """End the open watches, as the API server does after a time; logs go on."""
        with self._changed:
            self._generation += 1
            self._changed.notify_all()

    def hold_watch(self, resource: str) -> None:
        """Keep watches of a resource from sending anything."""
        self._held.add(resource)

    def stop(self) -> None:
        """End all watches and logs."""
        with self._changed:
            self._stopped = True
            self._generation += 1
            self._changed.notify_all()

    def _first(self, resource: str, verb: str) -> Request | None:
        return next((r for r in self.requests if (r.resource, _verb(r)) == (resource, verb)), None)

    def record(self, request: Request) -> None:
        with self._changed:
            request.generation = self._generation
            self.requests.append(request)
            self._changed.notify_all()

    def find(self, request: Request) -> list[Object]:
        with self._changed:
            items = self._objects.get(request.resource, {}).values()
            return [item for item in items if _matches(item, request.query)]

    def watch(self, request: Request) -> Iterator[Object]:
        with self._changed:
            position, generation = len(self._changes), request.generation
            present = [] if request.resource in self._held else self.find(request)
        for item in present:
            yield {"type": "ADDED", "object": item}
        while True:
            with self._changed:
                while self._generation == generation and (
                    len(self._changes) == position or request.resource in self._held
                ):
                    self._changed.wait()
                if self._generation != generation:
                    return
                new, position = self._changes[position:], len(self._changes)
            for resource, kind, item in new:
                if resource == request.resource and _matches(item, request.query):
                    yield {"type": kind, "object": item}

    def read_log(self, pod: str, query: dict[str, str]) -> Iterator[str]:
        log = self._logs[pod]
        position = max(0, len(log.lines) - int(query.get("tailLines", len(log.lines))))
        while True:
            with self._changed:
                over = query.get("follow", "").lower() != "true"
                while not (over or log.ended or self._stopped or len(log.lines) > position):
                    self._changed.wait()
                new, position = log.lines[position:], len(log.lines)
                last = over or log.ended or self._stopped
            yield from new
            if last:
                return

    def has_log(self, pod: str) -> bool:
        return pod in self._logs


def _verb(request: Request) -> str:
    if request.method != "GET":
        return {"POST": "create", "PATCH": "patch", "DELETE": "delete"}[request.method]
    if request.query.get("watch", "").lower() == "true":
        return "watch"
    name = request.path.rpartition("/")[2]
    is_list = name == request.resource != "log" or request.resource == "podmetrics"
    return "list" if is_list else "get"


def _matches(item: Object, query: dict[str, str]) -> bool:
    labels = item["metadata"].get("labels") or {}
    terms = [term.partition("=") for term in query.get("labelSelector", "").split(",") if term]
    name = query.get("fieldSelector", "").removeprefix("metadata.name=")
    return all(labels.get(key) == value for key, _, value in terms) and name in (
        "", item["metadata"]["name"]
    )  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    # Chunks, as the API server sends them: a client reads each as it comes.
    protocol_version = "HTTP/1.1"
    # Headers and body are two packets, and clients acknowledge the first after 40 ms.
    disable_nagle_algorithm = True
    cluster: FakeCluster

    def do_GET(self) -> None:
        request = self._request()
        if self._refused(request):
            return
        if request.resource == "log":
            pod = request.path.split("/")[-2]
            if not self.cluster.has_log(pod):
                self._fail(404, f'pods "{pod}" not found')
                return
            self._stream(line for line in self.cluster.read_log(pod, request.query))
        elif _verb(request) == "watch":
            self._stream(json.dumps(event) for event in self.cluster.watch(request))
        elif request.resource == "version":
            self._answer(200, {"gitVersion": "v1.34.4"})
        elif _verb(request) == "get":
            name = request.path.rpartition("/")[2]
            items = [i for i in self.cluster.find(request) if i["metadata"]["name"] == name]
            if items:
                self._answer(200, items[0])
            else:
                self._fail(404, f'{request.resource} "{name}" not found')
        else:
            self._answer(200, {"items": self.cluster.find(request)})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = self._request(body)
        if self._refused(request):
            return
        metadata = body.get("metadata", {})
        item = {
            **body,
            "metadata": {**metadata, "name": metadata.get("generateName", "") + "x1"},
            "status": self.cluster.created_status,
        }
        self.cluster.put(request.resource, item)
        self._answer(201, item)

    def do_PATCH(self) -> None:
        request = self._request(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if not self._refused(request):
            name = request.path.removesuffix("/scale").rpartition("/")[2]
            self._answer(
                200, next(i for i in self.cluster.find(request) if i["metadata"]["name"] == name)
            )

    def do_DELETE(self) -> None:
        request = self._request(
            json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        )
        if not self._refused(request):
            self.cluster.remove(request.resource, request.path.rpartition("/")[2])
            self._answer(200, {"kind": "Status"})

    def _request(self, body: Any = None) -> Request:
        parts = urlsplit(self.path)
        request = Request(self.command, parts.path, dict(parse_qsl(parts.query)), body)
        self.cluster.record(request)
        return request

    def _refused(self, request: Request) -> bool:
        refusal = self.cluster.refusals.get(f"{request.resource} {_verb(request)}")
        if refusal:
            self._fail(*refusal)
        return refusal is not None

    def _fail(self, status: int, message: str) -> None:
        self._answer(status, {"kind": "Status", "message": message, "code": status})

    def _answer(self, status: int, document: Object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, lines: Iterator[str]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for line in lines:
                chunk = f"{line}\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            return  # The client has what it wanted.

    def log_message(self, *arguments: object) -> None:
        """Keep the tests' output free of a line for each request."""


@contextmanager
def running(cluster: FakeCluster) -> Iterator[str]:
    """Serve the cluster, and yield the server's address."""
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    # Not to wait for clients that never close a watch.
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        cluster.stop()
        server.shutdown()
        thread.join()
        server.server_close()


def write_kubeconfig(path: Path, address: str, namespace: str = "team") -> None:
    """A kubeconfig of two contexts, `main` (current) and `other`, which has no namespace."""
    contexts = [
        {"name": "main", "context": {"cluster": "c", "user": "u", "namespace": namespace}},
        {"name": "other", "context": {"cluster": "c", "user": "u"}},
    ]
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "main", "contexts": contexts,
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {}}],
    }  # fmt: skip
    path.write_text(json.dumps(config))
