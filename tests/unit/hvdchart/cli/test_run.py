"""deploy and undeploy, with a small API server and a Helm that records its calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hvdchart.cli.run import _follow
from hvdchart.run.cluster import Cluster
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.runs import JOB, STATEFUL_SET, WORKERS, job, pod, terminated

pytestmark = pytest.mark.timeout(120)
SPEC = {
    "apiVersion": "hvdchart/v1",
    "name": "hvd",
    "nodes": [{"name": "n", "count": 2, "coresPerSocket": 4, "memory": "8Gi"}],
    "image": {"repository": "a"},
    "train": {"command": ["train"]},
}
DONE = job(("Complete", "", ""))
FAILED = job(("Failed", "BackoffLimitExceeded", "limit"), failed=4)
ENDED_MASTER = pod(f"{JOB}-x", "master", terminated(0), phase="Succeeded")


def play(cluster: FakeCluster, run: Any, master: Any) -> FakeCluster:
    for namespace_object, items in (("jobs", [run]), ("statefulsets", [STATEFUL_SET])):
        cluster.put(namespace_object, *items)
    cluster.put("pods", *WORKERS, master)
    cluster.log(f"{JOB}-x", "first", "last", end=True)
    for worker in WORKERS:
        cluster.log(worker["metadata"]["name"])
    return cluster


def upgraded(helm: StubProgram) -> list[str]:
    return next(call.arguments for call in helm.calls if call.arguments[0] == "upgrade")


@pytest.mark.slow
def test_deploy_follows_the_logs_and_reports_the_end(
    hvdchart: Command, finished: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    done = hvdchart("deploy", spec)
    assert done.code == 0, done.errors
    assert done.output == f"[{JOB}-x] first\n[{JOB}-x] last\n"
    assert "release hvd in namespace team, revision 2: " in done.errors
    assert "ranks on 2 workers\n" in done.errors
    assert "hvd: finished\n" in done.errors
    assert not {"--create-namespace", "--kube-context"} & set(upgraded(helm))


def test_deploy_passes_its_options_to_helm_and_the_cluster(
    hvdchart: Command, finished: FakeCluster, spec: Path, helm: StubProgram, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    helm.path.rename(other)
    helm.path.with_name("helm.d").rename(tmp_path / "other.d")
    moved = StubProgram.__new__(StubProgram)
    moved._home = tmp_path / "other.d"
    options = ["--namespace", "mine", "--context", "other", "--create-namespace", "--detach"]
    done = hvdchart("deploy", spec, "--helm", other, *options, "--set", "name=changed")
    assert (done.code, done.output) == (0, "")
    arguments = upgraded(moved)
    assert arguments[1] == "changed"
    assert "--create-namespace" in arguments
    assert arguments[arguments.index("--namespace") + 1] == "mine"
    assert arguments[-2:] == ["--kube-context", "other"]
    assert done.errors.endswith("next: hvdchart logs changed --namespace mine\n")
    kinds = {request.resource for request in finished.requests}
    assert "log" not in kinds, "--detach follows nothing"


def test_deploy_prints_the_plans_warnings(
    hvdchart: Command, finished: FakeCluster, spec: Path
) -> None:
    volume = ["--set", "volumes.data.hostPath=/data"]
    plan = json.loads(hvdchart("plan", spec, *volume, "-o", "json").output)
    done = hvdchart("deploy", spec, *volume, "--detach")
    assert [line for line in done.errors.splitlines() if line.startswith("warning: ")] == [
        f"warning: {warning}" for warning in plan["warnings"]
    ]
    assert plan["warnings"]


def test_deploy_of_a_failed_run_exits_with_8(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    play(fake_cluster, FAILED, pod(f"{JOB}-x", "master", terminated(1, "boom"), phase="Failed"))
    done = hvdchart("deploy", spec)
    assert done.code == 8
    assert done.errors.endswith("hvdchart: run hvd failed: boom\n")


def test_deploy_of_a_suspended_run_returns(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    fake_cluster.put("jobs", job(suspend=True))
    done = hvdchart("deploy", spec)
    assert (done.code, done.output) == (0, "")
    assert "hvd: suspended" in done.errors


def test_deploy_of_a_run_that_has_ended_before_does_not_follow(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    fake_cluster.put("statefulsets", STATEFUL_SET)
    fake_cluster.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": {"state": "Finished"}})
    assert hvdchart("deploy", spec).code == 0


def test_interrupted_deploy_leaves_the_run_and_exits_with_130(
    hvdchart: Command, finished: FakeCluster, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for name in ("logs.follow", "events.follow_events", "watch.watch_release"):
        monkeypatch.setattr(f"hvdchart.run.{name}", interrupt)
    for command in (["logs", "hvd"], ["events", "hvd", "-f"], ["status", "hvd", "--watch"]):
        assert hvdchart(*command).code == 130
    monkeypatch.setattr("hvdchart.cli.run._follow", interrupt)
    done = hvdchart("deploy", spec)
    assert done.code == 130
    assert done.errors.endswith("the run continues: hvdchart logs hvd --namespace team\n")


def test_undeploy_uninstalls_the_release(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram
) -> None:
    done = hvdchart("undeploy", "hvd", "--context", "other", "--namespace", "mine")
    assert (done.code, done.output) == (0, "")
    assert done.errors == "release hvd uninstalled from namespace mine\n"
    arguments = helm.calls[-1].arguments
    assert arguments[:2] == ["uninstall", "hvd"]
    assert arguments[arguments.index("--namespace") + 1] == "mine"
    assert arguments[-1] == "other"


def test_undeploy_of_an_unknown_run_exits_with_7(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram
) -> None:
    message = "Error: uninstall: Release not loaded: nope: release: not found\n"
    helm.answer("uninstall", errors=message, code=1)
    done = hvdchart("undeploy", "nope")
    assert done.code == 7
    assert done.errors.startswith("hvdchart: no run nope in namespace team: list all runs: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["image", "check", "i", "--mode", "x"], "--mode 'x': must be one of mpirun, horovodrun"),
        (["image", "check", "i", "--engine", "x"], "--engine 'x': must be one of docker, podman"),
        (["status", "hvd", "-o", "x"], "--output 'x': must be text, json or yaml"),
    ],
)
def test_unknown_choice_is_refused_with_the_known_ones(
    hvdchart: Command, arguments: list[str], message: str
) -> None:
    done = hvdchart(*arguments)
    assert done.code == 2
    assert message in " ".join(done.errors.split())


def test_deploy_follows_the_warnings_of_the_cluster_too(finished: FakeCluster) -> None:
    cluster = Cluster.connect()
    _follow(cluster, cluster.release("hvd"), has_logs=True)
    finished.wait_for("events", "watch")
