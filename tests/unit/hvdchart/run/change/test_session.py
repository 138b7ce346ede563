"""The release of a command: how its lease is renewed, and what is told when it has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.shared.contract import RENEWED, SESSION
from hvdchart.errors import ClusterError
from hvdchart.run.change.session import Session
from hvdchart.run.helm import Helm
from hvdchart.run.kube.cluster import Cluster
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.objects import JOB, job
from tests.unit.hvdchart.played_runs import answer_as, installed_values

pytestmark = pytest.mark.timeout(120)


def put_job(cluster: FakeCluster, session: str, name: str = JOB) -> None:
    run_job = job(name=name)
    run_job["metadata"] |= {"annotations": {SESSION: session}, "uid": f"uid of {name}"}
    cluster.put("jobs", run_job)


def renewal(cluster: FakeCluster, name: str = JOB) -> Any:
    run_job = cluster.find("jobs", name)
    return run_job and run_job["metadata"]["annotations"].get(RENEWED)


@pytest.fixture
def reported() -> list[str]:
    return []


@pytest.fixture
def session(fake_cluster: FakeCluster, helm: StubProgram, reported: list[str]) -> Iterator[Session]:
    """A session whose lease is a second."""
    answer_as(helm, "hvd")
    with Session(Cluster.connect(), "hvd", Helm(), reported.append, "try again") as begun:
        begun.upgrade({"session": {"leaseSeconds": 1}})
        put_job(fake_cluster, installed_values(helm)["session"]["id"])
        yield begun


def test_lease_of_the_sessions_own_jobs_is_renewed(
    session: Session, fake_cluster: FakeCluster
) -> None:
    put_job(fake_cluster, "another one", "hvd-of-another-one")
    wait_until(lambda: renewal(fake_cluster), 20, "the first renewal")
    first = renewal(fake_cluster)
    wait_until(lambda: renewal(fake_cluster) != first, 20, "the next renewal")
    assert renewal(fake_cluster, "hvd-of-another-one") is None


def test_end_of_the_lease_is_reported_once_with_its_reason(
    session: Session, fake_cluster: FakeCluster, reported: list[str]
) -> None:
    """A machine that was asleep hears what has become of its run."""
    data = {"uid": f"uid of {JOB}", "state": "Failed", "lease": "nobody has renewed it"}
    fake_cluster.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": data})
    wait_until(lambda: reported, 20, "the end is told")
    first = renewal(fake_cluster)
    wait_until(lambda: renewal(fake_cluster) != first, 20, "the next renewal")
    (text,) = reported
    assert "nobody has renewed it" in text


def test_lease_that_cannot_be_renewed_is_reported_before_it_ends(
    session: Session, fake_cluster: FakeCluster, reported: list[str]
) -> None:
    fake_cluster.refusals["jobs patch"] = (403, "no rights")
    wait_until(lambda: reported, 20, "the failure is told")
    assert "no rights" in reported[0]


def test_lease_of_zero_seconds_is_none(fake_cluster: FakeCluster, helm: StubProgram) -> None:
    answer_as(helm, "hvd")
    with Session(Cluster.connect(), "hvd", Helm(), print, "") as endless:
        endless.upgrade({"session": {"leaseSeconds": 0}})
        assert installed_values(helm)["session"]["leaseSeconds"] == 0
        assert not [request for request in fake_cluster.requests if request.verb == "patch"]


@pytest.mark.parametrize("chart", ["horovod", "postgresql"])
def test_release_that_is_there_is_neither_replaced_nor_removed(
    fake_cluster: FakeCluster, helm: StubProgram, chart: str
) -> None:
    """A colleague's run, or a program of another chart."""
    helm.answer("get", json.dumps({"chart": chart, "revision": 1}))
    session = Session(Cluster.connect(), "hvd", Helm(), print, "")
    with pytest.raises(ClusterError, match="hvdchart undeploy hvd -n team"), session:
        session.upgrade({})
    assert not {"upgrade", "uninstall"} & set(helm.commands())
