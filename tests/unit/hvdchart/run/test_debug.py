"""What is told while the pods of a debug copy come up."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.errors import RunFailedError
from hvdchart.run import debug
from hvdchart.run.cluster import Cluster
from hvdchart.run.release import Release
from tests.fakes.cluster import FakeCluster
from tests.unit.hvdchart.runs import CREATING, JOB, MASTER, STATEFUL_SET, WORKERS, event, job, pod

UP = [MASTER, *WORKERS]
CREATED = [MASTER, WORKERS[0], pod("hvd-worker-1", "worker", CREATING)]
REFUSED = [
    MASTER,
    WORKERS[0],
    pod("hvd-worker-1", "worker", {"waiting": {"reason": "ErrImagePull"}}),
]


def release(pods: list[Any], *conditions: tuple[str, str, str], launched: bool = False) -> Release:
    events = [event(JOB, "Job", "Training", "starts", type="Normal")] if launched else []
    return Release("hvd", [job(*conditions)], [STATEFUL_SET], pods, events)


def wait(monkeypatch: pytest.MonkeyPatch, *seen: Release) -> list[str]:
    """What is told while these are seen one after the other; the last one is returned."""
    told: list[str] = []
    monkeypatch.setattr(debug, "watch_release", lambda *_: iter(seen))
    assert debug._wait_until_up(Cluster.connect(), "hvd", told.append) is seen[-1]
    return told


def test_each_reason_to_wait_is_told_once(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Release("hvd", [], [], [], [])
    # The pods are up before the master has handed out the code.
    ends = release(UP), release(UP, launched=True)
    seen = [release(pods) for pods in (CREATED, CREATED, REFUSED)]
    first, second = wait(monkeypatch, nothing, *seen, *ends)
    assert first == "1 of 2 workers are up; hvd-worker-1: ContainerCreating"
    assert second.startswith("hvd-worker-1: ErrImagePull of image team/train:1; ")
    assert len(second.split("; ")) > 1, "and what to do"


def test_a_copy_that_fails_is_an_error(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunFailedError, match="run hvd failed: limit"):
        wait(monkeypatch, release([], ("Failed", "BackoffLimitExceeded", "limit")))
