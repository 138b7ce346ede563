"""Follow a run as views: yield one now, and another one after each change.

The objects and the log come from `hvdchart.run.follow.logs`, the figures of the ranks from `top`'s
probe. Threads put what they read on one queue; the reader of the queue builds the view.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TypeAlias

from hvdchart.errors import ClusterError, NoRunError
from hvdchart.run.follow.changes import Follower
from hvdchart.run.follow.logs import LOG_TAIL_LINES, LogLine, created_at, follow_logs, last_lines
from hvdchart.run.inside.top import Usage, read_usage
from hvdchart.run.kube.api import RefusedError
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.kubectl import Kubectl
from hvdchart.run.kube.runs import present_run
from hvdchart.run.state.view import RunView
from hvdchart.watch.from_run import build_view
from hvdchart.watch.view_model import View

# Seconds between two readings of the pods' usage (a reading itself takes one second), and after a
# reading that failed.
USAGE_POLL_INTERVAL_SECONDS = 4.0
USAGE_RETRY_DELAY_SECONDS = 30.0
# A component that no pod has.
_NO_COMPONENT = "none"
# Seconds between two views: changes until then are shown together.
VIEW_INTERVAL_SECONDS = 0.25


@dataclass(frozen=True)
class _UsageReading:
    """The usage of the pods, or why it is unknown."""

    usages: list[Usage]
    problem: str = ""


@dataclass(frozen=True)
class _Ended:
    """The run is over, and its log has been read."""


@dataclass
class _Readings:
    """The data read so far."""

    run: RunView
    usage: _UsageReading = field(default_factory=lambda: _UsageReading([]))
    # The last lines of each pod's log.
    lines: dict[str, deque[str]] = field(default_factory=dict)
    is_over: bool = False

    def take(self, item: _Item) -> None:
        if isinstance(item, RunView):
            self.run = item
        elif isinstance(item, LogLine):
            self.lines.setdefault(item.pod, deque(maxlen=LOG_TAIL_LINES)).append(item.text)
        elif isinstance(item, _UsageReading):
            self.usage = item
        else:
            self.is_over = True

    def view(self, namespace: str) -> View:
        # Masters follow one another; warnings are about other pods.
        created = {pod["metadata"]["name"]: created_at(pod) for pod in self.run.release.pods}
        order = sorted(self.lines, key=lambda pod: created.get(pod, ""))
        return build_view(
            self.run,
            namespace,
            time.time(),
            usages=self.usage.usages,
            lines=[line for pod in order for line in self.lines[pod]],
            usage_problem=self.usage.problem,
        )


_Item: TypeAlias = RunView | LogLine | _UsageReading | _Ended


@dataclass
class _Readers:
    """The threads of `follow_views`; each reads until the follower is closed."""

    cluster: Cluster
    follower: Follower[_Item]
    readings: _Readings

    def read_run(self, name: str) -> None:
        """Put each change of a run and its logs, as far as the user's rights allow."""
        try:
            self._read_run(name, "master")
        except RefusedError as refused:
            if refused.status != HTTPStatus.FORBIDDEN:
                raise
            # Perhaps only the logs are refused: then show the rest.
            self._read_run(name, _NO_COMPONENT)

    def _read_run(self, name: str, component: str) -> None:
        put = self.follower.put
        for line in follow_logs(
            self.cluster, name, tail=LOG_TAIL_LINES, component=component, warnings=True, seen=put
        ):
            put(line)
        put(_Ended())

    def read_usage(self, kubectl: Kubectl) -> None:
        """Put the usage of the pods, again and again."""
        while not self.follower.closed.is_set():
            try:
                usage = _UsageReading(read_usage(self.readings.run, kubectl))
                pause = USAGE_POLL_INTERVAL_SECONDS
            except ClusterError as problem:
                usage = _UsageReading([], str(problem))
                pause = USAGE_RETRY_DELAY_SECONDS
            self.follower.put(usage)
            self.follower.closed.wait(pause)


def follow_views(cluster: Cluster, name: str, kubectl: Kubectl | None) -> Iterator[View]:
    """Yield views of a run from now to its end; the last one is complete.

    Without kubectl, they have no CPU and memory, and no step of each rank. Raises NoRunError
    without such a run, and ClusterError when the API server refuses a request.
    """
    run = present_run(cluster, name)
    if run.job is None:
        # The Job has a time to live: only the record is left.
        lines = last_lines(cluster, run)
        yield build_view(run, cluster.namespace, time.time(), lines=lines)
        return
    readings = _Readings(run)
    with Follower[_Item]() as follower:
        readers = _Readers(cluster, follower, readings)
        follower.start(partial(readers.read_run, name))
        if kubectl and not run.status.over:
            follower.start(partial(readers.read_usage, kubectl))
        while True:
            yield readings.view(cluster.namespace)
            if readings.is_over:
                return
            readings.take(follower.get())
            until = time.monotonic() + VIEW_INTERVAL_SECONDS
            with suppress(queue.Empty):
                while not readings.is_over:
                    readings.take(follower.get(max(0.0, until - time.monotonic())))
            if not readings.run.release.exists:
                raise NoRunError(name, cluster.namespace, "it was removed")
