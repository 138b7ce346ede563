"""The logs of all pods of a release, line by line as they come, until its run is over."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from hvdchart.errors import ClusterError
from hvdchart.run.release import Object, Release, event_time, is_about
from hvdchart.run.status import newest_job

# A watch is renewed when the server ends it; no rest is lost in between, for each starts anew
# from what there is.
_WATCH_SECONDS = 300
# A worker's startup probe fails until its SSH server is up.
_EXPECTED = ("Unhealthy",)
_ENDS = ("Complete", "Failed")


class Source(Protocol):
    """What is read of a cluster: `Cluster` offers it."""

    def release(self, name: str) -> Release:
        """All of a release, now."""

    def watch_pods(self, release: str, seconds: int) -> Iterator[tuple[str, Object]]:
        """A release's pods now, then as they change."""

    def watch_jobs(self, release: str, seconds: int) -> Iterator[tuple[str, Object]]:
        """A release's Jobs now, then as they change."""

    def watch_events(self, seconds: int) -> Iterator[tuple[str, Object]]:
        """The namespace's events now, then as they come."""

    def log(
        self, pod: str, container: str, *, follow: bool, tail: int | None = None
    ) -> Iterator[str]:
        """The lines of a container's log."""


@dataclass(frozen=True)
class LogLine:
    """One line of one pod."""

    pod: str
    text: str


@dataclass(frozen=True)
class _Ended:
    """A thread is done: of a pod's log, or (pod None) of the watch for the run's end."""

    pod: str | None = None
    error: ClusterError | None = None


def container_of(pod: Object) -> str:
    """The container that does the work: master or worker, as its label says."""
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get("app.kubernetes.io/component", "worker"))


def has_log(pod: Object) -> bool:
    """Whether the container runs or ran: before, the API server has no log of it."""
    for container in pod.get("status", {}).get("containerStatuses") or []:
        if container["name"] == container_of(pod):
            return bool({"running", "terminated"} & set(container.get("state") or {}))
    return False


def past(
    source: Source, release: str, *, tail: int | None = None, component: str = ""
) -> Iterator[LogLine]:
    """The lines that there are now, pod by pod."""
    for pod in source.release(release).pods:
        if has_log(pod) and component in ("", container_of(pod)):
            name = pod["metadata"]["name"]
            for line in source.log(name, container_of(pod), follow=False, tail=tail):
                yield LogLine(name, line)


def follow(
    source: Source,
    release: str,
    *,
    tail: int | None = None,
    component: str = "",
    warnings: bool = False,
) -> Iterator[LogLine]:
    """The lines of all pods of the release, or of its `component`, until the newest run is over.

    Pods that come later are followed too. With `warnings` the cluster's own about the release's
    objects come as lines as well: they tell why a pod does not start. Raises ClusterError when
    the API server refuses.
    """
    follower = _Follower(source, release, tail, component)
    if warnings:
        follower.tell_warnings()
    return follower.lines()


class _Follower:
    """A thread for each pod's log, one for the pods and one for the Job; all end in one queue."""

    def __init__(self, source: Source, release: str, tail: int | None, component: str) -> None:
        self._source, self._release = source, release
        self._tail, self._component = tail, component
        self._queue: queue.Queue[LogLine | _Ended] = queue.Queue(maxsize=10_000)
        self._open: set[str] = set()
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()

    def lines(self) -> Iterator[LogLine]:
        self._start(self._watch_jobs)
        self._start(self._watch_pods)
        over = False
        while True:
            item = self._queue.get()
            if isinstance(item, LogLine):
                yield item
                continue
            if item.error is not None:
                raise item.error
            if item.pod is not None:
                # Here, where its lines are behind us, and not where its log was read to the end.
                with self._lock:
                    self._open.discard(item.pod)
            else:
                over = True
                # The watch of pods may lag behind that of Jobs: the last master must not be missed.
                self._see_all()
            # The masters' logs end by themselves; workers' may go on for as long as their pods.
            if over and not any(self._is_master(pod) for pod in self._still_open()):
                return

    def tell_warnings(self) -> None:
        """Tell the cluster's warnings since the newest run began, too."""
        job = newest_job(self._source.release(self._release))
        since = str(job["metadata"]["creationTimestamp"]) if job else ""
        self._start(self._tell_warnings, since)

    def _still_open(self) -> set[str]:
        with self._lock:
            return set(self._open)

    def _is_master(self, pod: str) -> bool:
        return pod.startswith(f"{self._release}-master-")

    def _start(self, work: Callable[..., None], *arguments: str) -> None:
        threading.Thread(target=self._reported, args=(work, *arguments), daemon=True).start()

    def _reported(self, work: Callable[..., None], *arguments: str) -> None:
        try:
            work(*arguments)
        except ClusterError as error:
            # A pod may go between being seen and being read; any other refusal is for a person.
            gone = bool(arguments) and "not found" in str(error)
            self._ended(arguments[0] if arguments else None, None if gone else error)

    def _ended(self, pod: str | None, error: ClusterError | None = None) -> None:
        self._queue.put(_Ended(pod, error))

    def _watch_jobs(self) -> None:
        newest = ("", "")
        while not self._over.is_set():
            for kind, job in self._source.watch_jobs(self._release, _WATCH_SECONDS):
                found = (str(job["metadata"]["creationTimestamp"]), job["metadata"]["name"])
                going = kind != "DELETED" and "deletionTimestamp" in job["metadata"]
                if found < newest or going:
                    continue
                newest = found
                conditions = job.get("status", {}).get("conditions") or []
                ended = any(c["type"] in _ENDS and c["status"] == "True" for c in conditions)
                # Taken away: by an undeploy, or by its time to live.
                if ended or kind == "DELETED":
                    self._over.set()
                    self._ended(None)
                    return

    def _watch_pods(self) -> None:
        while not self._over.is_set():
            for kind, pod in self._source.watch_pods(self._release, _WATCH_SECONDS):
                self._see(kind, pod)

    def _tell_warnings(self, since: str) -> None:
        try:
            self._watch_events(since)
        except ClusterError as error:
            # They are an extra: logs are worth following without.
            self._queue.put(LogLine("events", str(error)))

    def _watch_events(self, since: str) -> None:
        told: set[str] = set()
        while not self._over.is_set():
            for _, event in self._source.watch_events(_WATCH_SECONDS):
                about = event.get("involvedObject", {}).get("name", "")
                line = f"{event.get('reason')}: {event.get('message', '')}"
                if (
                    event.get("type") == "Warning"
                    and event.get("reason") not in _EXPECTED
                    and is_about(event, self._release)
                    and event_time(event) >= since
                    and f"{about} {line}" not in told
                ):
                    told.add(f"{about} {line}")
                    self._queue.put(LogLine(about, line))

    def _see_all(self) -> None:
        for pod in self._source.release(self._release).pods:
            self._see("ADDED", pod)

    def _see(self, kind: str, pod: Object) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        wanted = self._component in ("", container_of(pod))
        if kind == "DELETED" or not wanted or not has_log(pod):
            return
        with self._lock:
            if uid in self._known:
                return
            self._known.add(uid)
            self._open.add(name)
        self._start(self._read, name, container_of(pod))

    def _read(self, name: str, container: str) -> None:
        for line in self._source.log(name, container, follow=True, tail=self._tail):
            self._queue.put(LogLine(name, line))
        self._ended(name)
