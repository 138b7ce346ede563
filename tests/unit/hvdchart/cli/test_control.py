"""wait, stop, restart and scale: a small API server and a Helm that records its calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import (
    DONE,
    ENDED_MASTER,
    FAILED,
    FAILED_MASTER,
    MASTER,
    OWN_CHART,
    STATEFUL_SET,
    VALUES,
    job,
)
from tests.unit.hvdchart.played_runs import (
    answer_as,
    installed_values,
    list_upgrades,
    meanwhile,
    play_run,
    report_progress,
)

pytestmark = pytest.mark.timeout(120)
GROUPS = [{"name": "cpu", "number": 2}, {"name": "gpu", "number": 1}]


@pytest.fixture
def running(fake_cluster: FakeCluster, helm: StubProgram) -> FakeCluster:
    """A run that continues, of a release with these values."""
    answer_as(helm, "hvd")
    helm.answer("get all", json.dumps(OWN_CHART))
    helm.answer("get values", json.dumps(VALUES))
    return play_run(fake_cluster, job(), MASTER)


@pytest.fixture
def failed(running: FakeCluster) -> FakeCluster:
    """A run that has failed, and whose workers are still there."""
    return play_run(running, FAILED, FAILED_MASTER)


def test_wait_ends_when_its_time_is_over(hvdchart: Command, running: FakeCluster) -> None:
    late = hvdchart("wait", "hvd", "--timeout", "0")
    assert (late.code, late.output) == (124, "")
    assert "within 0 s" in late.errors


def test_wait_reports_that_the_run_has_finished(hvdchart: Command, running: FakeCluster) -> None:
    def end() -> None:
        running.wait_for("jobs", "watch")
        play_run(running, DONE, ENDED_MASTER)

    with meanwhile(end):
        done = hvdchart("wait", "hvd", "--timeout", "5m")
    assert (done.code, done.output, done.errors) == (0, "run hvd finished\n", "")


def test_wait_reports_why_the_run_has_failed(hvdchart: Command, running: FakeCluster) -> None:
    play_run(running, FAILED, FAILED_MASTER)
    failed = hvdchart("wait", "hvd")
    assert (failed.code, failed.errors) == (8, "hvdchart: run hvd failed: boom\n")


@pytest.mark.parametrize(
    ("words", "values", "changed", "says"),
    [
        (
            ["stop"],
            VALUES,
            {"master": {"args": ["a"], "suspend": True}},
            "hvdchart restart hvd -n team\n",
        ),
        # Restarting ends a stop, too; Helm prints null for a release without values.
        (
            ["restart"],
            {"master": {"suspend": True}},
            {"master": {"suspend": False, "generation": 2}},
            "`master.generation=2`",
        ),
        (
            ["restart"],
            {"master": {"generation": 7}},
            {"master": {"suspend": False, "generation": 8}},
            "`master.generation=8`",
        ),
        (
            ["restart"],
            None,
            {"master": {"suspend": False, "generation": 2}},
            "`master.generation=2`",
        ),
        (
            ["scale", "3"],
            VALUES,
            {"worker": {"number": 3, "slots": 4}},
            " 3 workers ",
        ),
        (
            ["scale", "3", "--group", "gpu"],
            {"workerGroups": GROUPS},
            {"workerGroups": [GROUPS[0], {"name": "gpu", "number": 3}]},
            " 3 workers ",
        ),
    ],
)
def test_a_run_is_changed_by_one_upgrade_that_keeps_its_other_values(
    hvdchart: Command,
    running: FakeCluster,
    helm: StubProgram,
    words: list[str],
    values: Any,
    changed: dict[str, Any],
    says: str,
) -> None:
    helm.answer("get values", json.dumps(values))
    done = hvdchart(words[0], "hvd", *words[1:], "--context", "main")
    assert done.code == 0
    assert says in done.output
    (call,) = list_upgrades(helm)
    assert json.loads(call.input) == {**(values or {}), **changed}
    assert {"--reset-values", "--namespace", "team"} <= set(call.arguments)
    assert call.arguments[-2:] == ["--kube-context", "main"]


@pytest.mark.parametrize("words", [["stop"], ["restart"], ["scale", "3"]])
def test_a_run_that_helm_does_not_know_is_not_taken_for_missing(
    hvdchart: Command, running: FakeCluster, helm: StubProgram, words: list[str]
) -> None:
    """Argo CD, for instance, installs without a release of Helm."""
    for command in ("get metadata", "get values"):
        helm.answer(command, errors="Error: release: not found\n", code=1)
    done = hvdchart(words[0], "hvd", *words[1:])
    assert (done.code, list_upgrades(helm)) == (7, [])
    assert "release hvd in namespace team" in done.errors


@pytest.mark.parametrize("chart", ["parent", "horovod"])
@pytest.mark.parametrize("words", [["stop"], ["restart"], ["scale", "3"]])
def test_a_run_of_a_parent_chart_is_not_changed(
    hvdchart: Command, running: FakeCluster, helm: StubProgram, words: list[str], chart: str
) -> None:
    """An upgrade with this chart would delete all other objects of the release."""
    helm.answer("get all", json.dumps({"name": chart, "own": ""}))
    done = hvdchart(words[0], "hvd", *words[1:])
    assert (done.code, list_upgrades(helm)) == (7, [])
    assert f"hvd is a release of chart {chart} in namespace team" in done.errors
    assert f"the key of the dependency in {chart}" in done.errors


def workers_with(env: list[Any], *volumes: Any, **more: Any) -> Any:
    """The StatefulSet of a run, whose first volume is mounted at /output."""
    mounts = [{"name": volume["name"], "mountPath": "/output"} for volume in volumes[:1]]
    worker = {"name": "worker", "env": env, "volumeMounts": mounts, **more}
    template = {"spec": {"containers": [worker], "volumes": list(volumes)}}
    return {**STATEFUL_SET, "spec": {"replicas": 2, "template": template}}


OUTPUT = [{"name": "OUTPUT_PATH", "value": "/output/run"}]
CLAIM = {"name": "out", "persistentVolumeClaim": {"claimName": "out"}}
GONE_WITH_POD = {"name": "out", "emptyDir": {}}


@pytest.mark.parametrize("words", [["stop"], ["restart"], ["scale", "3"]])
@pytest.mark.parametrize(
    ("workers", "lost"),
    [
        pytest.param(workers_with([]), "OUTPUT_PATH", id="no path"),
        pytest.param(workers_with(OUTPUT), "/output", id="no volume"),
        pytest.param(workers_with(OUTPUT, GONE_WITH_POD), "emptyDir out", id="emptyDir"),
        pytest.param(workers_with(OUTPUT, CLAIM), "", id="a claim"),
        pytest.param(workers_with([], envFrom=[{}]), "", id="not known"),
    ],
)
def test_loss_by_a_planned_end_is_reported_before_it(
    hvdchart: Command, running: FakeCluster, words: list[str], workers: Any, lost: str
) -> None:
    running.put("statefulsets", workers)
    report_progress(running, {"step": 812})
    done = hvdchart(words[0], "hvd", *words[1:])
    assert done.code == 0
    assert ("812" in done.errors) is bool(lost)
    assert lost in done.errors


def test_what_an_earlier_run_has_reported_is_not_lost_again(
    hvdchart: Command, running: FakeCluster
) -> None:
    running.put("statefulsets", workers_with([]))
    report_progress(running, {"step": 812}, of="hvd-master-old")
    assert "812" not in hvdchart("stop", "hvd").errors


REMOVES = "hvdchart stop hvd -n team\n"


def test_status_says_how_to_remove_the_workers_of_an_ended_run(
    hvdchart: Command, failed: FakeCluster
) -> None:
    assert REMOVES in hvdchart("status", "hvd").output


def test_stop_of_a_run_that_has_ended_removes_its_workers(
    hvdchart: Command, failed: FakeCluster, helm: StubProgram
) -> None:
    """Without Helm: after an upgrade the Job would be suspended, and it has ended."""
    done = hvdchart("stop", "hvd")
    assert (done.code, installed_values(helm)) == (0, None)
    (patch,) = [request for request in failed.requests if request.method == "PATCH"]
    assert (patch.path.rpartition("/")[0][-10:], patch.body) == (
        "hvd-worker",
        {"spec": {"replicas": 0}},
    )


def test_stop_accepts_workers_that_are_deleted_meanwhile(
    hvdchart: Command, failed: FakeCluster
) -> None:
    failed.refusals["statefulsets patch"] = (404, "not found")
    assert hvdchart("stop", "hvd").code == 0


def test_stop_says_where_nothing_was_left(hvdchart: Command, failed: FakeCluster) -> None:
    failed.put("statefulsets", {**STATEFUL_SET, "spec": {"replicas": 0}})
    assert "nothing was left to stop" in hvdchart("stop", "hvd").output


def test_status_says_nothing_of_workers_that_are_gone(
    hvdchart: Command, failed: FakeCluster
) -> None:
    failed.put("statefulsets", {**STATEFUL_SET, "spec": {"replicas": 0}})
    assert REMOVES not in hvdchart("status", "hvd").output


@pytest.mark.parametrize(
    ("more", "why"),
    [([], "--group"), (["--group", "tpu"], "'tpu'")],
)
def test_scale_of_one_of_several_groups_needs_its_name(
    hvdchart: Command, running: FakeCluster, helm: StubProgram, more: list[str], why: str
) -> None:
    helm.answer("get values", json.dumps({"workerGroups": GROUPS}))
    done = hvdchart("scale", "hvd", "3", *more)
    assert (done.code, installed_values(helm)) == (7, None)
    assert "cpu, gpu; " in done.errors
    assert why in done.errors


@pytest.mark.parametrize("number", [1, 2])
def test_a_run_with_a_minimum_is_scaled_without_helm_and_continues(
    hvdchart: Command, running: FakeCluster, helm: StubProgram, number: int
) -> None:
    running.put("jobs", job(minimum=1))
    done = hvdchart("scale", "hvd", str(number))
    assert done.code == 0
    assert "and continues" in done.output
    patches = [request.body for request in running.requests if request.method == "PATCH"]
    # It has two spares.
    assert patches == [{"spec": {"replicas": number + 2}}]
    assert installed_values(helm) is None


def test_run_with_a_minimum_starts_again_on_more_workers_than_deployed(
    hvdchart: Command, running: FakeCluster
) -> None:
    running.put("jobs", job(minimum=1))
    assert "starts again" in hvdchart("scale", "hvd", "3").output


def test_scaling_an_ended_run_with_a_minimum_starts_it_again(
    hvdchart: Command, running: FakeCluster
) -> None:
    running.put("jobs", job(("Complete", "", ""), minimum=1))
    assert "starts again" in hvdchart("scale", "hvd", "2").output
