"""The commands on a cluster, with a small API server and a Helm that records its calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hvdchart.image.check import UNKNOWN_USER, probe_pod
from hvdchart.image.probe import MARK
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command, answer_as
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.image.test_check import GOOD
from tests.unit.hvdchart.nodes import node
from tests.unit.hvdchart.nodes import pod as other_pod
from tests.unit.hvdchart.runs import (
    JOB,
    LABELS,
    MASTER,
    RUNNING,
    STATEFUL_SET,
    WORKERS,
    event,
    job,
    pod,
    terminated,
)

pytestmark = pytest.mark.timeout(30)
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


@pytest.fixture
def spec(tmp_path: Path, helm: StubProgram) -> Path:
    """A spec's file. Helm installs it as `hvd`."""
    path = tmp_path / "run.spec.yaml"
    path.write_text(json.dumps(SPEC))
    answer_as(helm, "hvd")
    return path


@pytest.fixture
def finished(fake_cluster: FakeCluster) -> FakeCluster:
    """A run that has finished; its workers' logs go on."""
    return play(fake_cluster, DONE, ENDED_MASTER)


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

    monkeypatch.setattr("hvdchart.run.logs.follow", interrupt)
    answer = hvdchart("logs", "hvd")
    assert answer.code == 130
    monkeypatch.setattr("hvdchart.cli.run._follow", interrupt)
    done = hvdchart("deploy", spec)
    assert done.code == 130
    assert done.errors.endswith("the run continues: hvdchart logs hvd -n team\n")


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
    assert done.errors.startswith("hvdchart: no run nope in namespace team; list all runs: ")


def test_list_shows_each_run_on_a_line_or_as_json(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    play(fake_cluster, FAILED, pod(f"{JOB}-x", "master", terminated(1, "boom"), phase="Failed"))
    long = "a worker of the run was killed, because its container had used all of its memory " * 3
    labels = {**LABELS, "app.kubernetes.io/instance": "old"}
    old = {"metadata": {"name": "old-worker", "labels": labels}, "spec": {"replicas": 0}}
    fake_cluster.put("statefulsets", old)
    record = {"state": "Failed", "reason": long.strip()}
    fake_cluster.put("configmaps", {"metadata": {"name": "old-run"}, "data": record})
    fake_cluster.put("pods", {"metadata": {"name": "other", "labels": {"app": "other"}}})
    done = hvdchart("list")
    head, *lines = done.output.splitlines()
    assert head.split() == ["NAMESPACE", "NAME", "STATE", "WORKERS", "ATTEMPT", "REASON"]
    assert [line.split()[:5] for line in lines] == [
        ["team", "hvd", "failed", "2/2", "4/4"],
        ["team", "old", "failed", "0/0", "-"],
    ]
    assert lines[1].endswith(long.strip())
    documents = json.loads(hvdchart("list", "-A", "-o", "json").output)
    assert [(each["namespace"], each["name"]) for each in documents] == [
        ("team", "hvd"), ("team", "old"),
    ]  # fmt: skip


def test_list_without_a_run_says_so(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    done = hvdchart("list")
    assert (done.code, done.output, done.errors) == (0, "", "no runs in namespace team\n")
    assert hvdchart("list", "-A").errors == "no runs in any namespace\n"


def test_status_of_a_finished_run_is_text_or_json(hvdchart: Command, finished: FakeCluster) -> None:
    text = hvdchart("status", "hvd")
    assert (text.code, text.output.splitlines()[0]) == (0, "hvd: finished")
    assert "[" not in text.output, "no log of a run that did not fail"
    document = json.loads(hvdchart("status", "hvd", "-o", "json").output)
    assert (document["state"], document["job"], len(document["pods"])) == ("finished", JOB, 3)


def test_status_of_a_failed_run_has_the_end_of_its_last_log(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    play(fake_cluster, FAILED, pod(f"{JOB}-x", "master", terminated(1, "boom"), phase="Failed"))
    older = pod(f"{JOB}-a", "master", terminated(1, "older", at="09:00:00"), phase="Failed")
    fake_cluster.put("pods", older)
    fake_cluster.log(f"{JOB}-x", *(f"line {number}" for number in range(30)))
    done = hvdchart("status", "hvd")
    assert (done.code, done.errors) == (8, "hvdchart: run hvd failed\n")
    assert "why: boom\n" in done.output
    logged = [line for line in done.output.splitlines() if line.startswith("[")]
    assert logged == [f"[{JOB}-x] line {number}" for number in range(5, 30)]
    json_only = hvdchart("status", "hvd", "-o", "json")
    assert json_only.code == 8
    assert json.loads(json_only.output)["reason"] == "boom"


def test_status_of_an_unknown_run_exits_with_7(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    done = hvdchart("status", "hvd", "-n", "mine")
    assert done.code == 7
    assert "no run hvd in namespace mine: this namespace has no objects of the rel" in done.errors


def test_logs_follow_a_run_to_its_end(hvdchart: Command, finished: FakeCluster) -> None:
    done = hvdchart("logs", "hvd", "--tail", "1")
    assert (done.code, done.output) == (0, f"[{JOB}-x] last\n")


def test_logs_without_following_print_all_pods_or_the_masters(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    play(fake_cluster, job(), MASTER)
    fake_cluster.log("hvd-worker-0", "worker")
    done = hvdchart("logs", "hvd", "--no-follow")
    assert sorted(done.output.splitlines()) == [
        f"[{JOB}-x] first", f"[{JOB}-x] last", "[hvd-worker-0] worker",
    ]  # fmt: skip
    master = hvdchart("logs", "hvd", "--no-follow", "--master")
    assert master.output == f"[{JOB}-x] first\n[{JOB}-x] last\n"


def test_logs_of_a_run_without_a_job_are_those_so_far(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    fake_cluster.put("pods", pod("hvd-worker-0", "worker", RUNNING))
    fake_cluster.log("hvd-worker-0", "worker")
    assert hvdchart("logs", "hvd").output == "[hvd-worker-0] worker\n"
    unknown = hvdchart("logs", "none")
    assert (unknown.code, unknown.errors) == (7, "hvdchart: no run none in namespace team\n")


def test_log_lines_have_a_colour_for_each_pod_on_a_terminal(
    hvdchart: Command, fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"hvd-worker-{number}" for number in range(7)]
    fake_cluster.put("pods", *(pod(name, "worker", RUNNING) for name in names))
    for name in names:
        fake_cluster.log(name, "one", "two")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    lines = hvdchart("logs", "hvd").output.splitlines()
    codes = [line.partition("m[")[0].removeprefix("\x1b[") for line in lines]
    assert codes == [code for code in ["36", "32", "33", "35", "34", "91", "36"] for _ in range(2)]
    assert lines[0].endswith("[hvd-worker-0]\x1b[0m one")
    monkeypatch.setenv("NO_COLOR", "1")
    assert hvdchart("logs", "hvd").output.splitlines()[0] == "[hvd-worker-0] one"


def test_events_are_printed_oldest_first(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    fake_cluster.put("events", event("hvd-worker-0", "Pod", "Pulled", "done", type="Normal"))
    done = hvdchart("events", "hvd")
    assert done.output == "2026-01-01T10:00:01Z Normal Pod/hvd-worker-0 Pulled: done\n"
    assert (done.code, done.errors) == (0, "")
    none = hvdchart("events", "other", "--namespace", "mine")
    assert (none.code, none.output) == (0, "")
    assert none.errors.startswith("no events about other in namespace mine; ")


def test_discover_writes_a_spec_to_stdout_or_a_file(
    hvdchart: Command, fake_cluster: FakeCluster, tmp_path: Path
) -> None:
    fake_cluster.put("nodes", node("a", "8", "32Gi", {"pool": "x"}), node("b", "16", "32Gi"))
    done = hvdchart("discover", "-l", "pool=x", "--name", "mine")
    assert (done.code, done.errors) == (0, "")
    assert "name: mine" in done.output
    assert "pool: x" in done.output
    assert "coresPerSocket: 8" in done.output
    target = tmp_path / "out.yaml"
    assert hvdchart("discover", "-l", "pool=x", "--name", "mine", "-w", target).output == ""
    assert target.read_text() == done.output
    none = hvdchart("discover", "--selector", "pool=y")
    assert (none.code, none.errors) == (
        7,
        "hvdchart: the cluster has no nodes with labels pool=y\n",
    )


def test_discover_reads_numa_nodes_where_they_are_published(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    fake_cluster.put("nodes", node("a", "8", "32Gi"))
    zones = [{"name": f"node-{n}", "type": "Node"} for n in range(4)]
    fake_cluster.put("noderesourcetopologies", {"metadata": {"name": "a"}, "zones": zones})
    assert "numaPerSocket: 2" in hvdchart("discover").output
    for status in (403, 404):
        fake_cluster.refusals["noderesourcetopologies list"] = (status, "not here")
        done = hvdchart("discover")
        assert (done.code, done.errors) == (0, "")
        assert "numaPerSocket" not in done.output
    fake_cluster.refusals["noderesourcetopologies list"] = (500, "broken")
    done = hvdchart("discover")
    assert (done.code, done.output) == (7, "")
    assert "cannot list node resource topologies: broken" in done.errors


def test_discover_of_an_empty_cluster_exits_with_7(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    done = hvdchart("discover")
    assert (done.code, done.errors) == (7, "hvdchart: the cluster has no nodes\n")


def test_discover_needs_the_pods_for_fit_only(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    fake_cluster.put("nodes", node("a", "8", "32Gi"))
    fake_cluster.put("pods", other_pod("a", {"cpu": "7"}))
    assert hvdchart("discover", "--fit", "1").code == 7
    fake_cluster.refusals["pods list"] = (403, "forbidden")
    done = hvdchart("discover")
    assert done.code == 0
    assert "you are not allowed to (forbidden)" in done.errors
    assert done.errors.endswith("; continuing without the pods\n")
    assert "requests of DaemonSets are estimated" in done.output
    refused = hvdchart("discover", "--fit", "1")
    assert (refused.code, refused.output) == (7, "")


def measure(cluster: FakeCluster, helm: StubProgram, *results: str) -> None:
    """A tuning run that prints these lines and ends."""
    answer_as(helm, "hvd-tune")
    labels = {"app.kubernetes.io/name": "horovod", "app.kubernetes.io/instance": "hvd-tune"}
    run, master = job(("Complete", "", "")), pod("hvd-tune-master-1-a", "master", terminated(0))
    run["metadata"]["labels"] = labels
    master["metadata"]["labels"] = {**labels, "app.kubernetes.io/component": "master"}
    cluster.put("jobs", run)
    cluster.put("pods", master)
    cluster.log("hvd-tune-master-1-a", *results, end=True)


def result(run: int, speed: float | None, error: str = "") -> str:
    return "TUNE " + json.dumps({"run": run, "speed": speed, "error": error})


def test_tune_measures_in_a_run_and_writes_the_best_setting(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram, tmp_path: Path
) -> None:
    # Runs of the plan's own setting and of another, which is faster; both are measured again.
    measure(
        fake_cluster, helm, "hello", *(result(n, 10.0 if n % 2 == 0 else 20.0) for n in range(4))
    )
    target = tmp_path / "tuning.yaml"
    grid = ["--omp", "3", "--intra", "1", "--inter", "1", "--kmp-blocktime", "0"]
    options = ["--repeat", "2", "--confirm", "2", "--command", "bench 'a b'", "--workers", "1"]
    done = hvdchart("tune", spec, *grid, *options, "-w", target)
    assert done.code == 0, done.errors
    assert done.errors.startswith("2 settings, 2 runs each, on 1 worker\n1/4     10.00  OMP")
    assert "1 faster setting: measuring again, in turn with the plan's\n" in done.errors
    assert "kmpBlocktime: 0" in target.read_text()
    assert "hvdchart tune run.spec.yaml`" in target.read_text()
    assert "+100.0% faster" in target.read_text()
    assert helm.commands().count("uninstall") == 2
    installed = json.loads(next(c.input for c in helm.calls if c.arguments[0] == "upgrade"))
    assert installed["worker"]["number"] == 1
    driven = json.loads(installed["master"]["args"][-2])
    assert driven["command"] == ["bench", "a b"]
    assert len(driven["runs"]) == 4
    assert driven["runs"][1] == {
        "OMP_NUM_THREADS": "3", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1",
        "KMP_BLOCKTIME": "0",
    }  # fmt: skip


def test_tune_without_a_faster_setting_keeps_the_plans(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    measure(fake_cluster, helm, result(0, 10.0), result(1, None, "crashed"))
    grid = ["--omp", "3", "--intra", "1", "--inter", "1", "--repeat", "1"]
    options = ["--model", "VGG16", "--batch-size", "4", "--steps", "7"]
    done = hvdchart("tune", spec, *grid, *options, "--context", "main")
    assert done.code == 0, done.errors
    assert "2/2    failed  OMP_NUM_THREADS=3" in done.errors
    assert "keep the plan's" in done.output
    assert helm.commands().count("upgrade") == 1
    assert upgraded(helm)[-1] == "main"
    installed = json.loads(next(c.input for c in helm.calls if c.arguments[0] == "upgrade"))
    command = json.loads(installed["master"]["args"][-2])["command"]
    assert command[-6:] == ["--model", "VGG16", "--batch-size", "4", "--steps", "7"]


def test_tune_without_a_result_uninstalls_and_has_the_last_line(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    measure(fake_cluster, helm, "no module named tensorflow")
    done = hvdchart("tune", spec)
    assert done.code == 8
    assert done.errors.endswith(
        "hvd-tune ended without a measurement; its last line: "
        "hvd-tune-master-1-a: no module named tensorflow\n"
    )
    assert helm.commands()[-1] == "uninstall"


@pytest.mark.parametrize("numbers", ["x", "1,,2", "-1", "1234567"])
def test_tune_refuses_what_is_not_a_list_of_numbers(
    hvdchart: Command, spec: Path, numbers: str
) -> None:
    done = hvdchart("tune", spec, "--inter", numbers)
    assert done.code == 2
    assert "must be whole numbers, separated by commas" in " ".join(done.errors.split())


def test_image_check_runs_the_probe_as_an_unknown_user(hvdchart: Command, programs: Path) -> None:
    docker = StubProgram(programs, "docker")
    docker.answer("run", f"banner\n{MARK}{json.dumps(GOOD)}\n")
    done = hvdchart("image", "check", "image:1", "--engine", "docker")
    assert (done.code, done.errors) == (0, "")
    assert done.output.startswith("image:1\n  ok  Python 3.8+")
    assert f"--user={UNKNOWN_USER}:0" in docker.calls[-1].arguments
    docker.answer("run", f"{MARK}{json.dumps({**GOOD, 'horovod': False})}\n")
    lacking = hvdchart("image", "check", "image:1", "--engine", "docker", "--mode", "elastic")
    assert lacking.code == 9
    assert lacking.errors.endswith(
        "hvdchart: image:1 cannot be used with launch.mode elastic; missing: Horovod\n"
    )


def test_image_check_in_cluster_runs_the_probe_in_a_pod(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    name = "hvdchart-image-check-x1"
    fake_cluster.created_status = {"phase": "Succeeded"}
    fake_cluster.log(name, f"{MARK}{json.dumps(GOOD)}", end=True)
    done = hvdchart("image", "check", "image:1", "--in-cluster", "-n", "mine")
    assert (done.code, done.errors) == (0, "")
    request = fake_cluster.wait_for("pods", "create")
    assert request.url == "/api/v1/namespaces/mine/pods"
    assert request.body == probe_pod("image:1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["image", "check", "i", "--mode", "x"], "--mode 'x': must be one of mpirun, horovodrun"),
        (["image", "check", "i", "--engine", "x"], "--engine 'x': must be one of docker, podman"),
        (["status", "hvd", "-o", "x"], "--output 'x': must be text or json"),
    ],
)
def test_unknown_choice_is_refused_with_the_known_ones(
    hvdchart: Command, arguments: list[str], message: str
) -> None:
    done = hvdchart(*arguments)
    assert done.code == 2
    assert message in " ".join(done.errors.split())
