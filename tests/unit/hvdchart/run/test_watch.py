"""Following a release until it ends, with an API server that may be slow or away."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run import watch
from hvdchart.run.api import RefusedError
from hvdchart.run.cluster import Cluster
from hvdchart.run.watch import wait_for_end, watch_release
from tests.fakes.cluster import FakeCluster
from tests.unit.hvdchart.runs import MASTER, STATEFUL_SET, WORKERS, job

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
    seen = []
    for release in watch_release(cluster, "hvd"):
        seen.append(len(release.pods))
        if len(seen) == 1:
            fake_cluster.remove("pods", "hvd-worker-1")
        if seen[-1] == 2:
            break
    assert (seen[0], seen[-1]) == (3, 2)


def test_the_record_which_is_not_watched_is_read_again(
    cluster: Cluster, fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "READ_EVERY", 0.05)
    for release in watch_release(cluster, "hvd"):
        if release.record:
            break
        record = {"metadata": {"name": "hvd-run"}, "data": {"state": "Running"}}
        fake_cluster.put("configmaps", record)


def test_the_end_of_the_run_is_waited_for(cluster: Cluster, fake_cluster: FakeCluster) -> None:
    def end() -> None:
        fake_cluster.wait_for("jobs", "watch")
        fake_cluster.put("jobs", job(("Failed", "BackoffLimitExceeded", "limit")))

    ending = threading.Thread(target=end)
    ending.start()
    assert wait_for_end(cluster, "hvd").state == "failed"
    ending.join()


def test_a_run_that_has_ended_is_not_watched(cluster: Cluster, fake_cluster: FakeCluster) -> None:
    fake_cluster.put("jobs", job(("Complete", "", "")))
    assert wait_for_end(cluster, "hvd").state == "finished"
    assert wait_for_end(cluster, "none").state == "not found"


@pytest.mark.slow
def test_the_time_out_ends_the_wait(cluster: Cluster) -> None:
    assert wait_for_end(cluster, "hvd", timeout=0.1).state == "running"


def test_a_server_that_is_away_for_a_while_is_waited_for(
    cluster: Cluster, fake_cluster: FakeCluster
) -> None:
    answers = iter(["away"])
    whole: Any = cluster.release

    def release(name: str) -> Any:
        if next(answers, None):
            raise ClusterError("cannot list jobs: the API server does not answer")
        return whole(name)

    cluster.release = release  # type: ignore[method-assign]
    fake_cluster.refusals["pods watch"] = (503, "starting")
    fake_cluster.put("jobs", job(("Complete", "", "")))
    assert wait_for_end(cluster, "hvd").state == "finished"


@pytest.mark.parametrize("status", [429, 500, 503, 504, 410])
def test_an_answer_that_passes_is_asked_for_again(cluster: Cluster, status: int) -> None:
    answers: Any = iter([RefusedError("later", status), ClusterError("reset"), "done"])

    def call() -> str:
        answer = next(answers)
        if isinstance(answer, ClusterError):
            raise answer
        return str(answer)

    assert watch._call_with_retries(call) == "done"


def test_a_server_that_stays_away_is_an_error(
    cluster: Cluster, fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "RETRY_SECONDS", 0.05)
    fake_cluster.refusals["pods list"] = (503, "starting")
    with pytest.raises(ClusterError, match="cannot list pods in namespace team: starting"):
        wait_for_end(cluster, "hvd")


@pytest.mark.parametrize("request_kind", ["pods list", "jobs watch"])
def test_a_refusal_ends_the_wait_at_once(
    cluster: Cluster, fake_cluster: FakeCluster, request_kind: str
) -> None:
    fake_cluster.refusals[request_kind] = (403, "no right")
    with pytest.raises(ClusterError, match=r"you are not allowed to \(no right\)"):
        wait_for_end(cluster, "hvd")
