"""Follows the logs of all pods of a release, line by line, until its run is over."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hvdchart.errors import ClusterError
from hvdchart.run.cluster import Cluster
from hvdchart.run.release import Object, component_of, event_time, is_about
from hvdchart.run.status import newest_job

# Seconds after which the API server ends a watch and another watch starts. Nothing is lost between:
# each watch begins with the objects that exist.
_WATCH_SECONDS = 300
# The reason of a failed probe. A worker's startup probe fails until its SSH server is up.
_EXPECTED = "Unhealthy"
_ENDS = ("Complete", "Failed")


@dataclass(frozen=True)
class LogLine:
    """One line of one pod's log."""

    pod: str
    text: str


@dataclass(frozen=True)
class _Ended:
    """A thread has ended: the reader of the log of `pod` or, for None, the watch of Jobs."""

    pod: str | None = None
    error: ClusterError | None = None


def has_log(pod: Object) -> bool:
    """Whether the main container has started: before that, the API server has no log of it."""
    for container in pod.get("status", {}).get("containerStatuses") or []:
        if container["name"] == component_of(pod):
            return bool({"running", "terminated"} & set(container.get("state") or {}))
    return False


def read_logged_lines(
    cluster: Cluster,
    release: str,
    *,
    tail: int | None = None,
    since: int | None = None,
    component: str = "",
) -> Iterator[LogLine]:
    """The lines logged so far, or in the last `since` seconds, pod by pod."""
    for pod in cluster.release(release).pods:
        if has_log(pod) and component in ("", component_of(pod)):
            name = pod["metadata"]["name"]
            for line in cluster.log(name, component_of(pod), follow=False, tail=tail, since=since):
                yield LogLine(name, line)


def follow(
    cluster: Cluster,
    release: str,
    *,
    tail: int | None = None,
    since: int | None = None,
    component: str = "",
    warnings: bool = False,
) -> Iterator[LogLine]:
    """The lines of all pods of the release, or of its `component`, until the newest run is over.

    Pods that are created later are included. `tail` and `since` (seconds) leave out older lines.
    With `warnings`, the cluster's Warning events about the release's objects are lines too: they
    show why a pod does not start. Raises ClusterError when the API server refuses a request.
    """
    follower = _Follower(cluster, release, tail, since, component)
    if warnings:
        follower.watch_warnings()
    return follower.lines()


class _Follower:
    """One thread for each pod's log, one for the pods and one for the Jobs, all with one queue."""

    def __init__(
        self, cluster: Cluster, release: str, tail: int | None, since: int | None, component: str
    ) -> None:
        self._cluster, self._release = cluster, release
        self._tail, self._since, self._component = tail, since, component
        self._queue: queue.Queue[LogLine | _Ended] = queue.Queue(maxsize=10_000)
        self._open: set[str] = set()
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()

    def lines(self) -> Iterator[LogLine]:
        self._start(self._watch_jobs)
        self._start(self._watch_pods)
        try:
            yield from self._lines()
        finally:
            # Also when a request is refused: the other threads would watch for ever.
            self._over.set()

    def _lines(self) -> Iterator[LogLine]:
        over = False
        while True:
            item = self._queue.get()
            if isinstance(item, LogLine):
                yield item
                continue
            if item.error is not None:
                raise item.error
            if item.pod is not None:
                # Here, after the pod's last line, and not in the thread, which is ahead of us.
                with self._lock:
                    self._open.discard(item.pod)
            else:
                over = True
                # The watch of pods may lag behind the watch of Jobs and miss the last master.
                self._start_all()
            # A master's log ends with the run; a worker's may last as long as its pod.
            if over and not self._is_master_log_open():
                return

    def watch_warnings(self) -> None:
        """Add the cluster's warnings since the start of the newest run."""
        job = newest_job(self._cluster.release(self._release))
        since = str(job["metadata"]["creationTimestamp"]) if job else ""
        self._start(self._watch_warnings, since)

    def _is_master_log_open(self) -> bool:
        with self._lock:
            return any(pod.startswith(f"{self._release}-master-") for pod in self._open)

    def _start(self, work: Callable[..., None], *arguments: str) -> None:
        threading.Thread(target=self._run, args=(work, *arguments), daemon=True).start()

    def _run(self, work: Callable[..., None], *arguments: str) -> None:
        try:
            work(*arguments)
        except ClusterError as error:
            # A pod may be deleted before its log is read; any other error ends the command.
            deleted = bool(arguments) and "not found" in str(error)
            self._queue.put(_Ended(arguments[0] if arguments else None, None if deleted else error))

    def _watch_jobs(self) -> None:
        newest = ("", "")
        while not self._over.is_set():
            for kind, job in self._cluster.watch_jobs(self._release, _WATCH_SECONDS):
                this = (str(job["metadata"]["creationTimestamp"]), job["metadata"]["name"])
                deleting = kind != "DELETED" and "deletionTimestamp" in job["metadata"]
                if this < newest or deleting:
                    continue
                newest = this
                conditions = job.get("status", {}).get("conditions") or []
                ended = any(c["type"] in _ENDS and c["status"] == "True" for c in conditions)
                # `undeploy` and the Job's time to live delete it.
                if ended or kind == "DELETED":
                    self._over.set()
                    self._queue.put(_Ended())
                    return

    def _watch_pods(self) -> None:
        while not self._over.is_set():
            for kind, pod in self._cluster.watch_pods(self._release, _WATCH_SECONDS):
                self._start_log(kind, pod)

    def _watch_warnings(self, since: str) -> None:
        try:
            self._watch_events(since)
        except ClusterError as error:
            # The logs can be followed without the warnings.
            self._queue.put(LogLine("events", str(error)))

    def _watch_events(self, since: str) -> None:
        shown: set[str] = set()
        while not self._over.is_set():
            for _, event in self._cluster.watch_events(_WATCH_SECONDS):
                subject = event.get("involvedObject", {}).get("name", "")
                line = f"{event.get('reason')}: {event.get('message', '')}"
                if (
                    event.get("type") == "Warning"
                    and event.get("reason") != _EXPECTED
                    and is_about(event, self._release)
                    and event_time(event) >= since
                    and f"{subject} {line}" not in shown
                ):
                    shown.add(f"{subject} {line}")
                    self._queue.put(LogLine(subject, line))

    def _start_all(self) -> None:
        for pod in self._cluster.release(self._release).pods:
            self._start_log("ADDED", pod)

    def _start_log(self, kind: str, pod: Object) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        wanted = self._component in ("", component_of(pod))
        if kind == "DELETED" or not wanted or not has_log(pod):
            return
        with self._lock:
            if uid in self._known:
                return
            self._known.add(uid)
            self._open.add(name)
        self._start(self._read, name, component_of(pod))

    def _read(self, name: str, container: str) -> None:
        lines = self._cluster.log(name, container, follow=True, tail=self._tail, since=self._since)
        for line in lines:
            self._queue.put(LogLine(name, line))
        self._queue.put(_Ended(name))
