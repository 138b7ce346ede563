"""Follows the state of a release: its objects now, and again each time that they have changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from hvdchart.errors import ClusterError
from hvdchart.run.api import RefusedError
from hvdchart.run.cluster import Cluster
from hvdchart.run.pod_problems import problem_of
from hvdchart.run.release import Object, Release, component_of
from hvdchart.run.status import Status, is_ready, run_status

T = TypeVar("T")
# A watch is opened again after this many seconds.
WATCH_SECONDS = 300
# Seconds to collect changes before the objects are read: 200 pods may start together.
SETTLE = 0.2
# Seconds after which the objects are read without a change: the record has no watch of its own.
READ_EVERY = 5.0
# For how many seconds an API server that does not answer is tried again, with a pause.
RETRY_SECONDS, PAUSE = 120.0, 1.0


def watch_release(cluster: Cluster, name: str, timeout: float | None = None) -> Iterator[Release]:
    """The release now and after each change, until `timeout` seconds have passed.

    Raises ClusterError when the API server refuses a request, or does not answer for minutes.
    """
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    follower = _Follower(cluster, name)
    try:
        while True:
            follower.changed.clear()
            yield _call_with_retries(lambda: cluster.release(name))
            if not follower.wait(deadline):
                return
    finally:
        follower.closed.set()


def wait_for_end(cluster: Cluster, name: str, timeout: float | None = None) -> Status:
    """The status of a run that has ended, or that does not exist; its last one at the time-out."""
    for release in watch_release(cluster, name, timeout):
        current = run_status(release)
        if current.over or current.state == "not found":
            break
    return current


def wait_until_served(cluster: Cluster, name: str, report: Callable[[str], None]) -> None:
    """Return when the release's TensorBoard answers; reports why it does not so far."""
    last = ""
    for release in watch_release(cluster, name):
        pods = [pod for pod in release.pods if component_of(pod) == "tensorboard"]
        if any(map(is_ready, pods)):
            return
        problem = next(filter(None, (problem_of(pod, release.events) for pod in pods)), None)
        reason = f": {problem.reason}; {problem.advice}" if problem else ""
        text = f"TensorBoard is not up yet{reason}"
        if text != last:
            report(text)
        last = text


class _Follower:
    """Sets `changed` at each change; a thread for the pods and one for the Jobs."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.changed, self.closed = threading.Event(), threading.Event()
        self._error: ClusterError | None = None
        for watch in (cluster.watch_pods, cluster.watch_jobs):
            threading.Thread(target=self._run, args=(watch, name), daemon=True).start()

    def wait(self, deadline: float) -> bool:
        """Wait until it is time to read again; False at the deadline."""
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if self.changed.wait(min(left, READ_EVERY)):
            time.sleep(min(SETTLE, left))
        if self._error is not None:
            raise self._error
        return True

    def _run(self, watch: Callable[[str, int], Iterator[tuple[str, Object]]], name: str) -> None:
        try:
            while not self.closed.is_set():
                _call_with_retries(lambda: self._follow(watch(name, WATCH_SECONDS)))
                self.closed.wait(PAUSE)
        except ClusterError as error:
            self._error = error
            self.changed.set()

    def _follow(self, changes: Iterator[tuple[str, Object]]) -> None:
        for _ in changes:
            self.changed.set()
            if self.closed.is_set():
                return


def _call_with_retries(call: Callable[[], T]) -> T:
    """Call, and again while the API server does not answer; a refusal is final."""
    give_up_at = time.monotonic() + RETRY_SECONDS
    while True:
        try:
            return call()
        except RefusedError as error:
            if error.status < 500 and error.status not in (410, 429):
                raise
            failure: ClusterError = error
        except ClusterError as error:
            failure = error
        if time.monotonic() > give_up_at:
            raise failure
        time.sleep(PAUSE)
