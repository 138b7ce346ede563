"""A cluster for the tests of the command: the API server, pods with logs, and a kubeconfig."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.support.fakes import faults, secure
from tests.support.fakes.api import FakeApi
from tests.support.fakes.faults import Failure
from tests.support.fakes.request import Request
from tests.support.fakes.server import Handler

# The time of a log's first line, without its fraction and its zone.
_SECOND = "2026-01-01T10:00:05"


@dataclass
class _Log:
    # Each with its time before it.
    lines: list[str] = field(default_factory=list)
    ended: bool = False
    failures: list[Failure] = field(default_factory=list)
    # The number of responses that have ended.
    responses: int = 0


class FakeCluster(FakeApi):
    """The objects and logs of one cluster. Tests change them while clients watch."""

    def __init__(self) -> None:
        super().__init__()
        # Failed responses: status and message by resource and verb, such as "pods list".
        self.refusals: dict[str, tuple[int, str]] = {}
        self._logs: dict[str, _Log] = {}

    def names(self, resource: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.items(resource)]

    def log(self, pod: str, *lines: str, end: bool = False, at: str = "") -> None:
        """Add lines to a pod's log; `end`: its container has ended.

        Without a time `at`, they are of the same second as the line before.
        """
        with self._changed:
            log = self._logs.setdefault(pod, _Log())
            for line in lines:
                second = log.lines[-1][: len(_SECOND)] if log.lines else _SECOND
                log.lines.append(f"{at or f'{second}.{len(log.lines):09}Z'} {line}")
            log.ended = end
            self._changed.notify_all()

    def break_log(self, pod: str, failure: Failure = faults.end) -> None:
        """End the response that follows a pod's log, and wait for this; the log continues."""
        log = self._logs[pod]
        with self._changed:
            log.failures.append(failure)
            self._changed.notify_all()
        self.wait(lambda: not log.failures)

    def wait_for_log(self, pod: str, number: int) -> None:
        """Wait until `number` responses with a pod's log have ended."""
        self.wait(lambda: self._logs[pod].responses >= number)

    def wait_for(self, resource: str, verb: str, number: int = 1) -> Request:
        """Wait until `number` requests of this kind have arrived, and return the first."""

        def such() -> list[Request]:
            return [
                request
                for request in self.requests
                if (request.resource, request.verb) == (resource, verb)
            ]

        self.wait(lambda: len(such()) >= number, 60)
        return such()[0]

    def _own_answer(self, request: Request) -> Failure | None:
        kind = f"{request.resource} {request.verb}"
        if kind in self.refusals:
            return faults.status(*self.refusals[kind])
        failure = super()._own_answer(request)
        if failure or request.resource != "log" or request.name not in self._logs:
            return failure
        return lambda handler: self._send_log(handler, self._logs[request.name], request)

    def _uid_of(self, pod: str) -> str:
        item = self.find("pods", pod)
        return item["metadata"].get("uid", "") if item else ""

    def _send_log(self, handler: Handler, log: _Log, request: Request) -> None:
        query = request.query
        follows = query.get("follow") == "true"
        sent = max(0, len(log.lines) - int(query.get("tailLines", len(log.lines))))
        # A time without a fraction of a second, as the kubelet takes it.
        since = query.get("sinceTime", "").rstrip("Z")
        is_timed = query.get("timestamps") == "true"

        uid = self._uid_of(request.name)

        def is_over() -> bool:
            # A kubelet ends the log of a pod that is gone, also if another one has its name.
            is_gone = self._uid_of(request.name) != uid
            is_broken = bool(log.failures) or self.closed.is_set()
            return not follows or log.ended or is_gone or is_broken

        def has_more() -> bool:
            return len(log.lines) > sent

        handler.start_chunks()
        while has_more() or not is_over():
            with self._changed:
                self._changed.wait_for(lambda: has_more() or is_over())
                new = log.lines[sent:]
                sent = len(log.lines)
            for line in new:
                if line[: len(_SECOND)] >= since:
                    shown = line if is_timed else line.partition(" ")[2]
                    handler.send_chunk(f"{shown}\n".encode())
        with self._changed:
            failure = log.failures.pop(0) if follows and log.failures else faults.end
            log.responses += 1
            self._changed.notify_all()
        failure(handler)


def write_kubeconfig(path: Path, address: str, namespace: str = "team") -> None:
    """Write a kubeconfig of two contexts, `main` (current) and `other`, which has no namespace."""
    contexts = [
        {"name": "main", "context": {"cluster": "c", "user": "u", "namespace": namespace}},
        {"name": "other", "context": {"cluster": "c", "user": "u"}},
    ]
    secure.write_kubeconfig(path, {"server": address}, contexts=contexts)
