"""A cluster for the tests of the command: the API server, pods with logs, and a kubeconfig."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.support.fakes import faults, secure
from tests.support.fakes.api import FakeApi
from tests.support.fakes.faults import Failure
from tests.support.fakes.request import Request
from tests.support.fakes.server import Handler


@dataclass
class _Log:
    lines: list[str] = field(default_factory=list)
    ended: bool = False


class FakeCluster(FakeApi):
    """The objects and logs of one cluster. Tests change them while clients watch."""

    def __init__(self) -> None:
        super().__init__()
        # Failed responses: status and message by resource and verb, such as "pods list".
        self.refusals: dict[str, tuple[int, str]] = {}
        self._logs: dict[str, _Log] = {}

    def names(self, resource: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.items(resource)]

    def log(self, pod: str, *lines: str, end: bool = False) -> None:
        """Add lines to a pod's log; `end`: its container has ended."""
        with self._changed:
            log = self._logs.setdefault(pod, _Log())
            log.lines += lines
            log.ended |= end
            self._changed.notify_all()

    def wait_for(self, resource: str, verb: str, number: int = 1) -> Request:
        """Wait until `number` requests of this kind have arrived, and return the first."""

        def such() -> list[Request]:
            return [r for r in self.requests if (r.resource, r.verb) == (resource, verb)]

        self.wait(lambda: len(such()) >= number, 60)
        return such()[0]

    def _own_answer(self, request: Request) -> Failure | None:
        kind = f"{request.resource} {request.verb}"
        if kind in self.refusals:
            return faults.status(*self.refusals[kind])
        if request.resource == "log" and request.name in self._logs:
            return lambda handler: self._send_log(handler, self._logs[request.name], request)
        return super()._own_answer(request)

    def _send_log(self, handler: Handler, log: _Log, request: Request) -> None:
        follows = request.query.get("follow") == "true"
        sent = max(0, len(log.lines) - int(request.query.get("tailLines", len(log.lines))))

        def is_over() -> bool:
            return not follows or log.ended or self.closed.is_set()

        def has_more() -> bool:
            return len(log.lines) > sent

        handler.start_chunks()
        while has_more() or not is_over():
            with self._changed:
                self._changed.wait_for(lambda: has_more() or is_over())
                new = log.lines[sent:]
                sent = len(log.lines)
            for line in new:
                handler.send_chunk(f"{line}\n".encode())
        faults.end(handler)


def write_kubeconfig(path: Path, address: str, namespace: str = "team") -> None:
    """Write a kubeconfig of two contexts, `main` (current) and `other`, which has no namespace."""
    contexts = [
        {"name": "main", "context": {"cluster": "c", "user": "u", "namespace": namespace}},
        {"name": "other", "context": {"cluster": "c", "user": "u"}},
    ]
    secure.write_kubeconfig(path, {"server": address}, contexts=contexts)
