"""wait, stop, restart and scale: a small API server and a Helm that records its calls."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command, answer_as
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.runs import (
    DONE,
    ENDED_MASTER,
    FAILED,
    JOB,
    MASTER,
    installed_values,
    job,
    play,
    pod,
    terminated,
    upgrades,
)

pytestmark = pytest.mark.timeout(120)
VALUES: dict[str, Any] = {"worker": {"number": 2, "slots": 4}, "master": {"args": ["a"]}}


@pytest.fixture
def running(fake_cluster: FakeCluster, helm: StubProgram) -> FakeCluster:
    """A run that goes on, of a release with these values."""
    answer_as(helm, "hvd")
    helm.answer("get", json.dumps(VALUES))
    return play(fake_cluster, job(), MASTER)


def test_wait_tells_how_the_run_ended(hvdchart: Command, running: FakeCluster) -> None:
    def end() -> None:
        running.wait_for("jobs", "watch")
        play(running, DONE, ENDED_MASTER)

    ending = threading.Thread(target=end)
    ending.start()
    done = hvdchart("wait", "hvd", "--timeout", "5m")
    ending.join()
    assert (done.code, done.output, done.errors) == (0, "run hvd finished\n", "")
    play(running, FAILED, pod(f"{JOB}-x", "master", terminated(1, "boom"), phase="Failed"))
    failed = hvdchart("wait", "hvd")
    assert (failed.code, failed.errors) == (8, "hvdchart: run hvd failed: boom\n")


def test_wait_that_is_too_long_exits_with_124(hvdchart: Command, running: FakeCluster) -> None:
    done = hvdchart("wait", "hvd", "--timeout", "0s")
    assert (done.code, done.output) == (124, "")
    assert done.errors == "hvdchart: run hvd has not ended within 0s: it is running\n"


def test_stop_suspends_the_run_and_keeps_the_other_values(
    hvdchart: Command, running: FakeCluster, helm: StubProgram
) -> None:
    done = hvdchart("stop", "hvd", "--context", "main")
    assert (done.code, done.output) == (
        0, "run hvd stopped; start it again: hvdchart restart hvd\n",
    )  # fmt: skip
    assert installed_values(helm) == {**VALUES, "master": {"args": ["a"], "suspend": True}}
    (call,) = upgrades(helm)
    assert {"--reset-values", "--namespace", "team"} <= set(call.arguments)
    assert call.arguments[-2:] == ["--kube-context", "main"]


@pytest.mark.parametrize(("before", "after"), [(None, 2), (1, 2), (7, 8)])
def test_restart_increments_the_generation_and_ends_a_stop(
    hvdchart: Command, running: FakeCluster, helm: StubProgram, before: int | None, after: int
) -> None:
    master = {"suspend": True} | ({} if before is None else {"generation": before})
    helm.answer("get", json.dumps({"master": master}))
    done = hvdchart("restart", "hvd")
    assert (done.code, done.output) == (
        0, f"run hvd starts again (master.generation {after})\n",
    )  # fmt: skip
    assert installed_values(helm) == {"master": {"suspend": False, "generation": after}}


def test_scale_replaces_the_run(hvdchart: Command, running: FakeCluster, helm: StubProgram) -> None:
    done = hvdchart("scale", "hvd", "3")
    assert done.code == 0
    assert done.output.startswith("run hvd has 3 workers and starts again; the next deploy")
    assert installed_values(helm) == {**VALUES, "worker": {"number": 3, "slots": 4}}
    assert hvdchart("scale", "hvd", "0").code == 2


def test_scale_of_one_of_several_groups_needs_its_name(
    hvdchart: Command, running: FakeCluster, helm: StubProgram
) -> None:
    groups = [{"name": "cpu", "number": 2}, {"name": "gpu", "number": 1}]
    helm.answer("get", json.dumps({"workerGroups": groups}))
    for more in ([], ["--group", "tpu"]):
        done = hvdchart("scale", "hvd", "3", *more)
        assert (done.code, installed_values(helm)) == (7, None)
        assert "run hvd has these groups of workers: cpu, gpu; " in done.errors
    assert hvdchart("scale", "hvd", "3", "--group", "gpu").code == 0
    assert installed_values(helm) == {"workerGroups": [groups[0], {"name": "gpu", "number": 3}]}


def test_an_elastic_run_is_scaled_without_helm_and_goes_on(
    hvdchart: Command, running: FakeCluster, helm: StubProgram
) -> None:
    running.put("jobs", job(mode="elastic"))
    done = hvdchart("scale", "hvd", "4")
    assert done.code == 0
    assert "has 4 workers and continues" in done.output
    assert installed_values(helm) is None
    (patch,) = [request for request in running.requests if request.method == "PATCH"]
    assert patch.path.endswith("/statefulsets/hvd-worker/scale")
    assert patch.body == {"spec": {"replicas": 4}}
    too_many = hvdchart("scale", "hvd", "5")
    assert too_many.code == 7
    assert "run hvd has room for 4 workers: raise launch.elastic.maxRanks" in too_many.errors
