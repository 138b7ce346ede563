"""Follow the newest run of a release: yield it now, and again after each change.

Threads put the API server's responses on one queue; the reader of the queue handles them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, NamedTuple, Self, TypeVar

from hvdchart.errors import ClusterError
from hvdchart.run.kube.api import is_temporary
from hvdchart.run.kube.cluster import WATCH_SECONDS, Cluster
from hvdchart.run.kube.runs import newest_run
from hvdchart.run.state.release import Release, component_of, is_ready
from hvdchart.run.state.status import Status
from hvdchart.run.state.view import RunView

T = TypeVar("T")
# Seconds between two checks of a thread, which waits for a full queue, for the end of the reader.
_CLOSED_POLL_INTERVAL_SECONDS = 0.5


class Pauses(NamedTuple):
    """How often a run that is followed is read."""

    # Between two readings of the objects: 200 pods may start together.
    settle_seconds: float = 0.2
    # Until the objects are read without a change: the record is not watched.
    read_interval_seconds: float = 5.0
    # How long to retry while the API server does not answer, and between two attempts.
    retry_timeout_seconds: float = 120.0
    retry_interval_seconds: float = 1.0
    # Until a log without a new line is opened again: its connection may be lost.
    log_silence_seconds: float = 120.0


DEFAULT_PAUSES: Pauses = Pauses()


def watch_run(
    cluster: Cluster,
    name: str,
    timeout_seconds: float | None = None,
    kinds: Sequence[str] = ("pods", "jobs"),
    pauses: Pauses = DEFAULT_PAUSES,
) -> Iterator[RunView]:
    """Yield the run now and after each change of an object of these kinds, until the timeout.

    Without a timeout, there is no limit. Raises ClusterError when the API server refuses a request,
    or does not answer for `pauses.retry_timeout_seconds`.
    """
    deadline = float("inf") if timeout_seconds is None else time.monotonic() + timeout_seconds
    with Follower[None]() as follower:
        read = partial(call_with_retries, partial(newest_run, cluster, name), pauses)
        read_at = time.monotonic()
        run = read()
        for kind in kinds:
            follower.start(partial(_watch, cluster, kind, run.release, follower, pauses))
        while True:
            yield run
            left = deadline - time.monotonic()
            if left <= 0:
                return
            with suppress(queue.Empty):
                follower.get(min(left, pauses.read_interval_seconds))
                # Read all changes until then together.
                time.sleep(max(0.0, read_at + pauses.settle_seconds - time.monotonic()))
                while True:
                    follower.get(0)
            read_at = time.monotonic()
            run = read()


def wait_for_end(
    cluster: Cluster,
    name: str,
    timeout_seconds: float | None = None,
    seen: Callable[[RunView], None] = lambda run: None,
    pauses: Pauses = DEFAULT_PAUSES,
) -> Status:
    """Return the status of a run that ended, is stuck or is missing; at the timeout, the last one.

    Without a timeout, there is no limit. Calls `seen` with the run after each change.
    """
    for run in watch_run(cluster, name, timeout_seconds, pauses=pauses):
        seen(run)
        current = run.status
        if current.over or current.is_stuck or current.state == "not found":
            break
    return current


def wait_until_served(cluster: Cluster, name: str, report: Callable[[str], None]) -> None:
    """Return when the release's TensorBoard answers; report why it does not yet."""
    last = ""
    for run in watch_run(cluster, name):
        pods = [pod for pod in run.pods if component_of(pod) == "tensorboard"]
        if any(map(is_ready, pods)):
            return
        reason = ""
        for pod in pods:
            problem = run.problem(pod)
            if problem:
                reason = f": {problem.reason}; {problem.remedy}"
                break
        text = f"TensorBoard is not up yet{reason}"
        if text != last:
            report(text)
        last = text


class _ClosedError(Exception):
    """Nothing reads the items of a follower any more."""


class Follower(Generic[T]):
    """Threads that put their results on one queue, until the end of its `with` block.

    A thread waits while the queue has `most` items.
    """

    def __init__(self, most: int = 10_000) -> None:
        self.closed = threading.Event()
        self._items: queue.Queue[T | BaseException] = queue.Queue(most)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()

    def put(self, item: T) -> None:
        """Put an item on the queue; wait while it is full.

        At the end of the `with` block, it raises what ends the thread that calls it.
        """
        self._put(item)

    def get(self, seconds: float | None = None) -> T:
        """Return the next item. Raises queue.Empty after `seconds`, and a thread's exception."""
        item = self._items.get(timeout=seconds)
        if isinstance(item, BaseException):
            raise item
        return item

    def start(self, work: Callable[[], None]) -> None:
        """Run a function in its own thread; `get` raises its exception."""

        def run() -> None:
            with suppress(_ClosedError):
                try:
                    work()
                except BaseException as error:  # noqa: BLE001 - the reader raises it
                    self._put(error)

        threading.Thread(target=run, daemon=True).start()

    def _put(self, item: T | BaseException) -> None:
        while not self.closed.is_set():
            with suppress(queue.Full):
                self._items.put(item, timeout=_CLOSED_POLL_INTERVAL_SECONDS)
                return
        raise _ClosedError


def _watch(
    cluster: Cluster, kind: str, release: Release, follower: Follower[None], pauses: Pauses
) -> None:
    """Put an item for each object of a release and for each change.

    No change is lost between two watches: each starts with the existing objects.
    """
    # Events have no labels.
    labelled = "" if kind == "events" else release.name
    while not follower.closed.is_set():
        open_watch = partial(cluster.watch, kind, WATCH_SECONDS, labelled)
        changes = call_with_retries(open_watch, pauses)
        # A watch that breaks is opened again.
        with suppress(ClusterError):
            for _, changed in changes:
                if kind != "events" or release.has_event(changed):
                    follower.put(None)
                if follower.closed.is_set():
                    return
        follower.closed.wait(pauses.retry_interval_seconds)


def call_with_retries(call: Callable[[], T], pauses: Pauses) -> T:
    """Call a function, and retry while the API server does not answer.

    What continues after its answer, such as a watch or a log, may break at any time: its reader
    opens it again, and retries only that. The time counts from the first failure. Raises a refusal,
    and the last ClusterError.
    """
    give_up_at = None
    while True:
        try:
            return call()
        except ClusterError as error:
            now = time.monotonic()
            if give_up_at is None:
                give_up_at = now + pauses.retry_timeout_seconds
            if now > give_up_at or not is_temporary(error):
                raise
        time.sleep(pauses.retry_interval_seconds)
