"""Following a release until it ends, with an API server that may be slow or away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from types import SimpleNamespace
from typing import Any

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run.follow import changes as watch
from hvdchart.run.follow.changes import wait_for_end, watch_run
from hvdchart.run.follow.logs import follow
from hvdchart.run.kube.cluster import Cluster
from tests.support.fakes.cluster import FakeCluster
from tests.unit.hvdchart.objects import MASTER, STATEFUL_SET, WORKERS, job

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def cluster(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A run that goes on, and no pauses."""
    for name in ("SETTLE", "PAUSE"):
        monkeypatch.setattr(watch, name, 0.01)
    fake_cluster.put("jobs", job())
    fake_cluster.put("statefulsets", STATEFUL_SET)
    fake_cluster.put("pods", MASTER, *WORKERS)
    return Cluster.connect()


def test_the_release_is_read_again_at_each_change(
    cluster: Cluster, fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "READ_EVERY", 60.0)
    runs = watch_run(cluster, "hvd")
    assert len(next(runs).pods) == 3
    fake_cluster.remove("pods", "hvd-worker-1")
    assert any(len(run.pods) == 2 for run in runs)


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
    assert wait_for_end(cluster, "hvd").state == "finished"


def test_a_server_that_stays_away_is_an_error(
    cluster: Cluster, fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "RETRY_SECONDS", 0.05)
    fake_cluster.refusals["pods list"] = (503, "starting")
    with pytest.raises(ClusterError, match="cannot list pods in namespace team: starting"):
        wait_for_end(cluster, "hvd")


def test_a_watch_that_breaks_after_minutes_is_opened_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first breaks before anything has changed, and each later one after its objects."""
    now = [0.0]
    attempts = count()
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None)
    monkeypatch.setattr(watch, "time", clock)

    def break_after_minutes(*_: object) -> Iterator[tuple[str, Any]]:
        if next(attempts):
            yield "ADDED", job()
        now[0] += 200
        raise ClusterError("cannot watch jobs: the connection was reset")

    cluster.watch = break_after_minutes  # type: ignore[method-assign,assignment]
    monkeypatch.setattr(watch, "READ_EVERY", 60.0)
    runs = watch_run(cluster, "hvd", kinds=["jobs"])
    assert [len(run.pods) for run in islice(runs, 4)] == [3] * 4


@pytest.mark.parametrize(
    ("wait", "request_kinds"),
    [
        (lambda cluster: wait_for_end(cluster, "hvd"), ["pods list", "jobs watch"]),
        (lambda cluster: list(follow(cluster, "hvd")), ["pods watch", "jobs watch", "log get"]),
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
        with pytest.raises(ClusterError, match=r"you are not allowed to \(no right\)"):
            wait(cluster)
