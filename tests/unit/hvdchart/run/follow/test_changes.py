"""Following a release until it ends, with an API server that may be slow or away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run.follow.changes import Follower, Pauses, wait_for_end, watch_run
from hvdchart.run.follow.logs import follow_logs
from hvdchart.run.kube.cluster import Cluster
from tests.support.fakes.cluster import FakeCluster
from tests.unit.hvdchart.objects import MASTER, STATEFUL_SET, WORKERS, event, job

pytestmark = pytest.mark.timeout(120)
# The objects are read only after a change.
SHORT = Pauses(settle_seconds=0.01, read_interval_seconds=60.0, retry_interval_seconds=0.01)


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> Cluster:
    """A run that does not end."""
    fake_cluster.put("jobs", job())
    fake_cluster.put("statefulsets", STATEFUL_SET)
    fake_cluster.put("pods", MASTER, *WORKERS)
    return Cluster.connect()


def test_the_release_is_read_again_at_each_change(
    cluster: Cluster, fake_cluster: FakeCluster
) -> None:
    runs = watch_run(cluster, "hvd", pauses=SHORT)
    assert len(next(runs).pods) == 3
    fake_cluster.remove("pods", "hvd-worker-1")
    assert any(len(run.pods) == 2 for run in runs)


def test_events_about_objects_of_another_prefix_are_followed(
    fake_cluster: FakeCluster,
) -> None:
    """As with `fullnameOverride: lab`."""
    fake_cluster.put("jobs", job(name="lab-master-1"))
    pauses = SHORT._replace(read_interval_seconds=600.0)
    runs = watch_run(Cluster.connect(), "hvd", kinds=["events"], pauses=pauses)
    assert next(runs).release.events == []
    fake_cluster.put("events", event("lab-worker-0", "Pod", "FailedMount", ""))
    assert len(next(runs).release.events) == 1


def test_a_server_that_is_away_for_a_while_is_waited_for(
    cluster: Cluster, fake_cluster: FakeCluster
) -> None:
    answers = iter(["away"])
    whole = cluster.objects

    def objects(kind: str, labels: str = "", *, everywhere: bool = False) -> Any:
        if next(answers, None):
            raise ClusterError("cannot list jobs: the API server does not answer")
        return whole(kind, labels, everywhere=everywhere)

    cluster.objects = objects  # type: ignore[method-assign]
    fake_cluster.refusals["pods watch"] = (503, "starting")
    fake_cluster.put("jobs", job(("Complete", "", "")))
    assert wait_for_end(cluster, "hvd", pauses=SHORT).state == "finished"


def test_a_server_that_stays_away_is_an_error(cluster: Cluster, fake_cluster: FakeCluster) -> None:
    fake_cluster.refusals["pods list"] = (503, "starting")
    with pytest.raises(ClusterError, match="pods in namespace team: starting"):
        wait_for_end(cluster, "hvd", pauses=SHORT._replace(retry_timeout_seconds=0.05))


def test_a_watch_that_breaks_is_opened_again(cluster: Cluster) -> None:
    """The first breaks before anything has changed, and each later one after its objects."""
    attempts = count()

    def break_watch(*_: object) -> Iterator[tuple[str, Any]]:
        if next(attempts):
            yield "ADDED", job()
        raise ClusterError("cannot watch jobs: the connection was reset")

    cluster.watch = break_watch  # type: ignore[method-assign,assignment]
    runs = watch_run(
        cluster, "hvd", kinds=["jobs"], pauses=SHORT._replace(retry_timeout_seconds=0.0)
    )
    assert [len(run.pods) for run in islice(runs, 4)] == [3] * 4


@pytest.mark.parametrize(
    ("wait", "request_kinds"),
    [
        (lambda cluster: wait_for_end(cluster, "hvd"), ["pods list", "jobs watch"]),
        (
            lambda cluster: list(follow_logs(cluster, "hvd")),
            ["pods watch", "jobs watch", "log get"],
        ),
    ],
    ids=["status", "logs"],
)
def test_a_refused_request_ends_each_command_that_waits(
    cluster: Cluster,
    fake_cluster: FakeCluster,
    wait: Callable[[Cluster], object],
    request_kinds: list[str],
) -> None:
    for kind in request_kinds:
        fake_cluster.refusals = {kind: (403, "no right")}
        with pytest.raises(ClusterError, match=r"\(no right\)"):
            wait(cluster)


def test_an_unexpected_error_of_a_thread_reaches_the_reader() -> None:
    def fail() -> None:
        raise ValueError("a defect")

    with Follower[None]() as follower:
        follower.start(fail)
        with pytest.raises(ValueError, match="a defect"):
            follower.get(20)


def test_a_thread_ends_with_the_follower_though_nothing_reads_its_items() -> None:
    ended = threading.Event()

    def put_without_end() -> None:
        try:
            for number in count():
                follower.put(number)
        finally:
            ended.set()

    with Follower[int](most=2) as follower:
        follower.start(put_without_end)
        assert [follower.get(20) for _ in range(3)] == [0, 1, 2]
        assert not ended.is_set()
    assert ended.wait(20)
