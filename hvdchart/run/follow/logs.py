"""Follow the logs of all pods of a release, line by line, until its run is over."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from hvd_pods.shared.record import LEASE_KEPT, RecordKey
from hvd_pods.shared.untrusted import one_line
from hvdchart.errors import ClusterError
from hvdchart.run.follow.changes import (
    DEFAULT_PAUSES,
    Follower,
    Pauses,
    call_with_retries,
    watch_run,
)
from hvdchart.run.follow.position import LogPosition
from hvdchart.run.kube.api import RefusedError, unless_refused
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.runs import read_release
from hvdchart.run.state.release import Object, Release, component_of, event_time
from hvdchart.run.state.run_problems import may_pass
from hvdchart.run.state.view import RunView

# Seconds without a line after which the log of a finished run is complete.
_LOG_SILENCE_SECONDS = 1.0
# The number of last lines of a master's log to search for the stack of a stalled rank.
LOG_TAIL_LINES = 500
# The maximum number of characters of a warning.
_MAX_WARNING_CHARACTERS = 1200
# The reason of a failed probe. A worker's startup probe fails until its agent is up.
FAILED_PROBE = "Unhealthy"


@dataclass(frozen=True)
class LogLine:
    """One line of one pod's log."""

    pod: str
    text: str


@dataclass(frozen=True)
class _Ended:
    """The log of the pod with this UID has ended; `problem` tells why it cannot be read further."""

    uid: str
    problem: LogLine | None = None


def has_log(pod: Object) -> bool:
    """Return whether the main container has started, so that the API server has its log."""
    return bool({"running", "terminated"} & _states(pod))


def _states(pod: Object) -> set[str]:
    """Return the state of the main container: waiting, running or terminated; empty without one."""
    for container in pod.get("status", {}).get("containerStatuses") or []:
        if container["name"] == component_of(pod):
            return set(container.get("state") or {})
    return set()


def read_logged_lines(
    cluster: Cluster,
    release: str,
    *,
    tail: int | None = None,
    since: int | None = None,
    component: str = "",
) -> Iterator[LogLine]:
    """Yield the lines logged so far, or in the last `since` seconds, pod by pod.

    `tail` is the number of last lines of each pod. `component` selects the pods, as in
    `follow_logs`. Raises ClusterError when the API server refuses a request.
    """
    for pod in read_release(cluster, release).pods:
        if has_log(pod) and component in ("", component_of(pod)):
            name = pod["metadata"]["name"]
            for line in cluster.log(name, component_of(pod), tail=tail, since=since):
                yield LogLine(name, line)


def last_lines(cluster: Cluster, run: RunView) -> list[str]:
    """Return the last lines of the newest master's log; none if they cannot be read."""
    newest = max(filter(has_log, run.masters), key=created_at, default=None)
    if newest is None:
        return []
    name = str(newest["metadata"]["name"])
    read = partial(cluster.log, name, "master", tail=LOG_TAIL_LINES)
    return unless_refused(lambda: list(read()), [])


def created_at(item: Object) -> str:
    """Return the creation time of an object, in RFC 3339; empty if it has none."""
    return str(item["metadata"].get("creationTimestamp", ""))


def follow_logs(
    cluster: Cluster,
    release: str,
    *,
    tail: int | None = None,
    since: int | None = None,
    component: str = "",
    warnings: bool = False,
    seen: Callable[[RunView], None] = lambda run: None,
    pauses: Pauses = DEFAULT_PAUSES,
) -> Iterator[LogLine]:
    """Yield the lines of all pods of the release, or of a `component`, until its last run is over.

    Pods that are created later are included. `tail` and `since` (seconds) leave out older lines.
    With `warnings`, the cluster's Warning events about the release's objects become lines: they
    show why a pod does not start. Calls `seen` with the run after each change. After a broken
    connection, the logs continue. The reason why a pod's log cannot be read becomes a line. Raises
    ClusterError when the user may not read logs, when the API server refuses to show the run, and
    when it does not answer for `pauses.retry_timeout_seconds`.
    """
    with Follower[LogLine | _Ended | RunView]() as follower:
        following = _Following(cluster, release, tail, since, component, warnings, pauses, follower)
        follower.start(following.watch)
        while not following.is_complete:
            try:
                # The master of a session stays after the run; by then, its last lines have arrived.
                item = follower.get(_LOG_SILENCE_SECONDS if following.over.is_set() else None)
            except queue.Empty:
                if following.keeps_master:
                    return
                continue
            if isinstance(item, LogLine):
                yield item
            elif isinstance(item, _Ended):
                yield from following.close(item)
            else:
                seen(item)
                yield from following.take(item)


@dataclass
class _Following:
    """The settings and state of following a release. Its threads put all that they read."""

    cluster: Cluster
    release: str
    tail: int | None
    since: int | None
    component: str
    warnings: bool
    pauses: Pauses
    follower: Follower[LogLine | _Ended | RunView]
    # What was read of each log, by the UID of its pod, and the components whose log continues.
    positions: dict[str, LogPosition] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    shown: set[LogLine] = field(default_factory=set)
    # The first Job seen.
    first: Object | None = None
    # Set at the end of the run.
    over: threading.Event = field(default_factory=threading.Event)
    # Whether the master stays after the end of the run.
    keeps_master: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all lines have arrived.

        A master's log ends with the run; a worker's may last as long as its pod.
        """
        return self.over.is_set() and "master" not in self.open.values()

    def watch(self) -> None:
        """Put each view of the run."""
        kinds = ("pods", "jobs", "events") if self.warnings else ("pods", "jobs")
        for run in watch_run(self.cluster, self.release, kinds=kinds, pauses=self.pauses):
            self.follower.put(run)

    def take(self, run: RunView) -> Iterator[LogLine]:
        """Follow the pods that are new in a view; yield its new warnings."""
        for pod in run.release.pods:
            uid = pod["metadata"]["uid"]
            is_wanted = self.component in ("", component_of(pod)) and uid not in self.open
            # The container of a worker may be restarted.
            is_new = "running" in _states(pod) or uid not in self.positions
            if is_wanted and is_new and has_log(pod):
                self.open[uid] = component_of(pod)
                position = self.positions.setdefault(uid, LogPosition())
                self.follower.start(partial(self._read, pod, position))
        self.first = self.first or run.job
        if self.first and self.warnings:
            since = str(self.first["metadata"]["creationTimestamp"])
            new = [
                warning for warning in _warnings(run.release, since) if warning not in self.shown
            ]
            self.shown.update(new)
            yield from dict.fromkeys(new)
        self.keeps_master = run.release.record.get(RecordKey.LEASE) == LEASE_KEPT
        # `undeploy` and the Job's time to live delete the Job.
        is_gone = bool(self.first and run.status.state == "not found")
        if run.status.over or run.status.is_stuck or is_gone:
            self.over.set()

    def close(self, ended: _Ended) -> Iterator[LogLine]:
        """Note that a log has ended; yield why if it cannot be read, once for each problem.

        It is read again if its container runs in a later view.
        """
        del self.open[ended.uid]
        if ended.problem and ended.problem not in self.shown:
            self.shown.add(ended.problem)
            yield ended.problem

    def _read(self, pod: Object, position: LogPosition) -> None:
        """Put the lines of a pod until its container has ended."""
        name = str(pod["metadata"]["name"])
        problem = None
        try:
            for line in self._lines(pod, position):
                self.follower.put(LogLine(name, line))
        except ClusterError as error:
            status = error.status if isinstance(error, RefusedError) else None
            # The user may read no log.
            if status == HTTPStatus.FORBIDDEN:
                raise
            # A pod may be deleted before its log is read. The run continues without a lost node;
            # the watch of the run finds out whether the API server is away.
            if status != HTTPStatus.NOT_FOUND:
                problem = LogLine(name, str(error))
        self.follower.put(_Ended(pod["metadata"]["uid"], problem))

    def _lines(self, pod: Object, position: LogPosition) -> Iterator[str]:
        """Yield the lines of a pod after a position until its container has ended."""
        uid = pod["metadata"]["uid"]
        name = str(pod["metadata"]["name"])
        follow_log = partial(
            self.cluster.follow_log,
            name,
            component_of(pod),
            self.pauses.log_silence_seconds,
            tail=self.tail,
            since=self.since,
        )
        while pod["metadata"]["uid"] == uid:
            # A connection may end before the log does. One that is opened later has the rest.
            has_ended = self.over.is_set() or "running" not in _states(pod)
            second = position.second or position.began
            read = partial(follow_log, second=second, has_end=has_ended)
            response = call_with_retries(read, self.pauses)
            if self.tail is not None or self.since is not None:
                position.began = position.began or response.began
            try:
                yield from position.unread(response.lines)
            except ClusterError:
                self.follower.closed.wait(self.pauses.retry_interval_seconds)
            else:
                if has_ended:
                    return
                self.over.wait(self.pauses.retry_interval_seconds)
            if self.follower.closed.is_set():
                return
            pod = call_with_retries(partial(self.cluster.pod, name), self.pauses)


def _warnings(release: Release, since: str) -> Iterator[LogLine]:
    """Yield the lines of the warnings about the release since a time in RFC 3339."""
    for event in release.events:
        is_wanted = event.get("type") == "Warning" and event.get("reason") != FAILED_PROBE
        if is_wanted and not may_pass(event) and event_time(event) >= since:
            subject = str(event.get("involvedObject", {}).get("name", ""))
            text = one_line(
                f"{event.get('reason')}: {event.get('message', '')}", _MAX_WARNING_CHARACTERS
            )
            yield LogLine(subject, text)
