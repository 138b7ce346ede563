"""Follows the logs of all pods of a release, line by line, until its run is over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from hvd_pods.common.hostile import one_line
from hvdchart.errors import ClusterError
from hvdchart.run.cluster import Cluster
from hvdchart.run.release import Object, component_of, event_time, is_about
from hvdchart.run.status import newest_job
from hvdchart.run.watch import Follower, call_with_retries

# Characters of a warning.
_LONGEST = 1200
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
    """The log of this pod has ended."""

    pod: str


@dataclass(frozen=True)
class _Change:
    """A pod, a Job or an event was added, modified or deleted."""

    of: str
    kind: str
    item: Object


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
    known: set[str] = set()
    masters: set[str] = set()
    newest = ("", "")
    is_over = False
    since_event = ""
    shown: set[LogLine] = set()

    def read(pod: str, container: str) -> None:
        try:
            for line in cluster.log(pod, container, follow=True, tail=tail, since=since):
                follower.put(LogLine(pod, line))
        except ClusterError as error:
            # A pod may be deleted before its log is read.
            if "not found" not in str(error):
                raise
        follower.put(_Ended(pod))

    def start(pod: Object) -> None:
        uid, name = pod["metadata"]["uid"], str(pod["metadata"]["name"])
        if uid in known or component not in ("", component_of(pod)) or not has_log(pod):
            return
        known.add(uid)
        # A master's log ends with the run; a worker's may last as long as its pod.
        if component_of(pod) == "master":
            masters.add(name)
        follower.start(read, name, component_of(pod))

    with Follower[LogLine | _Ended | _Change]() as follower:
        follower.watch(cluster, "jobs", partial(_Change, "job"), release)
        follower.watch(cluster, "pods", partial(_Change, "pod"), release)
        if warnings:
            found = newest_job(call_with_retries(lambda: cluster.release(release)))
            since_event = str(found["metadata"]["creationTimestamp"]) if found else ""
            # The logs can be followed without the warnings.
            follower.watch(
                *(cluster, "events", partial(_Change, "event")),
                failure=lambda error: LogLine("events", str(error)),
            )
        while not is_over or masters:
            item = follower.get()
            if isinstance(item, LogLine):
                yield item
            elif isinstance(item, _Ended):
                masters.discard(item.pod)
            elif item.of == "event":
                line = _warning(item.item, release, since_event)
                if line and line not in shown:
                    shown.add(line)
                    yield line
            elif item.of == "pod" and item.kind != "DELETED":
                start(item.item)
            elif item.of == "job":
                metadata = item.item["metadata"]
                this = (str(metadata["creationTimestamp"]), str(metadata["name"]))
                deleting = item.kind != "DELETED" and "deletionTimestamp" in metadata
                if this < newest or deleting:
                    continue
                newest = this
                conditions = item.item.get("status", {}).get("conditions") or []
                ended = any(c["type"] in _ENDS and c["status"] == "True" for c in conditions)
                # `undeploy` and the Job's time to live delete it.
                if (ended or item.kind == "DELETED") and not is_over:
                    is_over = True
                    # The watch of pods may lag behind the watch of Jobs and miss the last master.
                    for pod in cluster.release(release).pods:
                        start(pod)


def _warning(event: Object, release: str, since: str) -> LogLine | None:
    """The line of a warning about the release since then; None for any other event."""
    is_told = event.get("type") == "Warning" and event.get("reason") != _EXPECTED
    if not is_told or not is_about(event, release) or event_time(event) < since:
        return None
    subject = str(event.get("involvedObject", {}).get("name", ""))
    text = one_line(f"{event.get('reason')}: {event.get('message', '')}", _LONGEST)
    return LogLine(subject, text)
