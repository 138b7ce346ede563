"""Following the events of a run, over real HTTP from a small API server."""

from __future__ import annotations

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run import watch
from hvdchart.run.cluster import Cluster
from hvdchart.run.events import follow_events
from tests.fakes.cluster import FakeCluster
from tests.unit.hvdchart.runs import JOB, event, job

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize("request_kind", ["events watch", "jobs list", "jobs watch"])
def test_a_refused_request_ends_the_following_with_its_error(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, request_kind: str
) -> None:
    monkeypatch.setattr(watch, "SETTLE", 0.0)
    fake_cluster.put("jobs", job())
    fake_cluster.put("events", event(JOB, "Job", "Started", "first", type="Normal"))
    fake_cluster.refusals[request_kind] = (403, "no right")
    events = follow_events(Cluster.connect(), "hvd")
    assert next(events)["message"] == "first"
    with pytest.raises(ClusterError, match=r"you are not allowed to \(no right\)"):
        list(events)


def test_events_are_given_as_they_come(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SETTLE", 0.0)
    fake_cluster.put("jobs", job())
    events = follow_events(Cluster.connect(), "hvd")
    for number in range(3):
        fake_cluster.put("events", event(JOB, "Job", f"Stage{number}", "", type="Normal"))
        assert next(events)["reason"] == f"Stage{number}"
    fake_cluster.put("jobs", job(("Complete", "", "")))
    assert list(events) == []
