"""Pods that the client starts for a moment."""

from __future__ import annotations

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.pods import restricted_pod, run_pod
from tests.support.fakes import faults
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.faults import Failure
from tests.unit.hvdchart.played_runs import meanwhile

pytestmark = [pytest.mark.timeout(40), pytest.mark.slow]
POD = restricted_pod("probe", "team/train:1", ["true"])
NAME = POD["metadata"]["name"]


@pytest.mark.parametrize("failure", [faults.end, faults.reset], ids=["ended", "reset"])
def test_pod_is_awaited_longer_than_a_watch_lasts(
    fake_cluster: FakeCluster, failure: Failure
) -> None:
    """Its node may pull a large image."""

    def end() -> None:
        fake_cluster.wait_for_watch("core/pods")
        fake_cluster.end_watches(failure)
        fake_cluster.wait_for_watch("core/pods", 2)
        fake_cluster.log(NAME, "done", end=True)
        fake_cluster.put("pods", {**POD, "status": {"phase": "Succeeded"}})

    with meanwhile(end):
        assert run_pod(Cluster.connect(), POD) == "done"
    assert fake_cluster.names("pods") == []


def test_pod_that_somebody_deletes_is_not_awaited(fake_cluster: FakeCluster) -> None:
    def delete() -> None:
        fake_cluster.wait_for_watch("core/pods")
        fake_cluster.remove("pods", NAME)

    with meanwhile(delete), pytest.raises(ClusterError, match=NAME):
        run_pod(Cluster.connect(), POD)


def test_pod_that_somebody_deletes_between_two_watches_is_not_awaited(
    fake_cluster: FakeCluster,
) -> None:
    def delete() -> None:
        fake_cluster.wait_for_watch("core/pods")
        fake_cluster.end_watches()
        fake_cluster.wait(lambda: not fake_cluster.watches("pods"))
        fake_cluster.remove("pods", NAME)

    with meanwhile(delete), pytest.raises(ClusterError, match=NAME):
        run_pod(Cluster.connect(), POD)
