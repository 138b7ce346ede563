"""The command `deploy`: its phases and logs, and releases that are there already."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import (
    DONE,
    ENDED_MASTER,
    FAILED,
    FAILED_MASTER,
    JOB,
    MASTER,
    OWN_CHART,
    event,
    job,
    pod,
)
from tests.unit.hvdchart.played_runs import (
    installed_values,
    list_upgrades,
    meanwhile,
    play_run,
    report_progress,
)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def running(fake_cluster: FakeCluster) -> FakeCluster:
    """A run that trains."""
    fake_cluster.put("events", event(JOB, "Job", "Training", "starts", type="Normal"))
    return play_run(fake_cluster, job(), MASTER)


def phases(errors: str) -> list[str]:
    """The phases that were printed, without their times."""
    lines = (line.partition(" s  ") for line in errors.splitlines())
    return [phase for head, _, phase in lines if head.startswith("hvdchart: ") and phase]


@contextmanager
def training_that_ends(running: FakeCluster) -> Iterator[None]:
    """A step in the middle of the block, and then the end of the run."""

    def end() -> None:
        running.wait_for("jobs", "watch")
        report_progress(running, {"step": 2})
        # The record is not watched. When the third read begins, the second has been shown.
        for _ in range(3):
            reads = sum(
                (request.resource, request.verb) == ("jobs", "list") for request in running.requests
            )
            running.put("pods", MASTER)
            running.wait_for("jobs", "list", reads + 1)
        running.put("pods", ENDED_MASTER)
        running.put("jobs", DONE)

    with meanwhile(end):
        yield


@pytest.fixture
def project(spec: Path) -> Path:
    """A folder with a spec and a script."""
    (spec.parent / "train.py").write_text("pass")
    return spec.parent


@pytest.mark.slow
def test_deploy_follows_phases_and_logs(
    hvdchart: Command, running: FakeCluster, spec: Path
) -> None:
    with training_that_ends(running):
        done = hvdchart("deploy", spec)
    assert (done.code, done.output) == (0, "first\nlast\n"), done.errors
    assert "revision 2: 2 ranks on 2 workers\n" in done.errors
    assert phases(done.errors) == ["training", "done: finished"]
    assert "replaces" not in done.errors, "Helm has left the run as it was"
    assert done.errors.endswith("next: hvdchart logs hvd -n team\n")
    # For warnings of the cluster.
    assert "events" in {request.resource for request in running.requests if request.verb == "watch"}


@pytest.mark.slow
def test_deploy_with_wait_follows_the_progress_alone(
    hvdchart: Command, running: FakeCluster, spec: Path
) -> None:
    with training_that_ends(running):
        done = hvdchart("deploy", spec, "--wait")
    assert (done.code, done.output) == (0, ""), done.errors
    assert "training: step 2" in phases(done.errors)


@contextmanager
def replacement(running: FakeCluster, resource: str, verb: str) -> Iterator[None]:
    """Another Job instead of the run's, after the first such request in the block."""
    report_progress(running, {"step": 120, "steps": 500, "secondsLeft": 9})

    def replace() -> None:
        running.wait_for(resource, verb)
        newer = job(("Complete", "", ""), name="hvd-master-2", created="2026-01-02T10:00:00Z")
        running.put("jobs", newer)

    with meanwhile(replace):
        yield


def test_deploy_says_which_run_it_replaces(
    hvdchart: Command, running: FakeCluster, spec: Path
) -> None:
    # As Helm does between the two looks at the release.
    with replacement(running, "configmaps", "get"):
        done = hvdchart("deploy", spec, "--wait")
    assert done.code == 0
    assert "at step 120 of 500\n" in done.errors


def test_deploy_fails_when_somebody_else_replaces_its_run(
    hvdchart: Command, running: FakeCluster, spec: Path
) -> None:
    with replacement(running, "jobs", "watch"):
        done = hvdchart("deploy", spec, "--wait")
    assert done.code == 8
    assert "run hvd was replaced" in done.errors


@pytest.mark.parametrize(
    ("run", "master", "code", "says"),
    [
        (
            DONE,
            ENDED_MASTER,
            0,
            "hvdchart restart hvd --namespace team\n",
        ),
        (FAILED, FAILED_MASTER, 8, "hvdchart: run hvd failed: boom\n"),
        (FAILED, FAILED_MASTER, 8, "hvdchart restart hvd --namespace team\n"),
        (job(suspend=True), MASTER, 0, "hvd: suspended"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--wait"]], ids=["followed", "waited for"])
def test_deploy_reports_the_state_of_an_unchanged_run(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    spec: Path,
    run: object,
    master: object,
    code: int,
    says: str,
    options: list[str],
) -> None:
    """And replays no log as if it trained."""
    play_run(fake_cluster, run, master)
    done = hvdchart("deploy", spec, *options)
    assert (done.code, done.output) == (code, "")
    assert says in done.errors


def test_run_is_either_left_at_once_or_waited_for(hvdchart: Command, spec: Path) -> None:
    assert hvdchart("deploy", spec, "--detach", "--wait").code == 2


def test_detached_deploy_fails_if_the_unchanged_run_has_failed(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path
) -> None:
    play_run(fake_cluster, FAILED, FAILED_MASTER)
    assert hvdchart("deploy", spec, "--detach").code == 8


@pytest.mark.parametrize("words", ["deploy {}", "undeploy hvd"])
@pytest.mark.parametrize("chart", ["postgresql", "horovod"])
def test_release_of_another_chart_is_left_alone(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    spec: Path,
    helm: StubProgram,
    chart: str,
    words: str,
) -> None:
    """Horovod's own chart has the name of this one."""
    helm.answer("get", json.dumps({"name": chart, "own": ""}))
    done = hvdchart(*words.format(spec).split())
    assert (done.code, set(helm.commands()) & {"upgrade", "uninstall"}) == (7, set())
    assert f"chart {chart} in namespace team" in done.errors


@pytest.mark.parametrize(
    "words", ["deploy {}", "deploy {} --diff", "deploy {} --force", "undeploy hvd"]
)
def test_release_of_a_parent_chart_is_left_alone(
    hvdchart: Command, running: FakeCluster, spec: Path, helm: StubProgram, words: str
) -> None:
    helm.answer("get", json.dumps({"name": "parent", "own": ""}))
    done = hvdchart(*words.format(spec).split())
    assert (done.code, set(helm.commands()) & {"upgrade", "uninstall"}) == (7, set())
    assert "hvd is a release of chart parent in namespace team" in done.errors


def test_deploy_upgrades_a_release_without_objects(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    helm.answer("get", json.dumps(OWN_CHART))
    assert hvdchart("deploy", spec, "--detach").code == 0
    assert len(list_upgrades(helm)) == 1


@pytest.mark.parametrize(
    ("revision", "status", "is_removed"),
    [
        (1, "failed", True),
        (1, "deployed", False),
        (2, "failed", False),
        # Another command is installing it.
        (1, "pending-install", False),
    ],
)
def test_deploy_removes_what_a_refused_installation_has_left(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    helm: StubProgram,
    spec: Path,
    revision: int,
    status: str,
    is_removed: bool,
) -> None:
    """But nothing of a release that was there before. Its workers would have no master."""
    metadata = {**OWN_CHART, "revision": revision, "status": status}
    helm.answer("get", json.dumps(metadata))
    helm.answer("upgrade", errors="Error: exceeded quota: jobs.batch", code=1)
    done = hvdchart("deploy", spec)
    assert done.code == 6
    assert ("uninstall" in helm.commands()) is is_removed


def test_helm_does_not_wait_roll_back_or_create_the_namespace(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    """Unless it is asked to create it."""
    for options in ([], ["--create-namespace"]):
        assert hvdchart("deploy", spec, "--detach", *options).code == 0
    plain, creating = (set(call.arguments) for call in list_upgrades(helm))
    assert not {"--atomic", "--rollback-on-failure", "--wait", "--create-namespace"} & plain
    assert "--create-namespace" in creating


@pytest.mark.parametrize(
    ("more", "is_set"), [([], True), (["--set", "values.launch.failOnNaN=false"], False)]
)
def test_deploy_ends_a_run_with_nan_where_it_is_asked_to(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    helm: StubProgram,
    spec: Path,
    more: list[str],
    is_set: bool,
) -> None:
    done = hvdchart("deploy", spec, "--fail-on-nan", *more, "--detach")
    assert done.code == 0, done.errors
    assert installed_values(helm)["launch"]["failOnNaN"] is is_set


def test_code_is_merged_after_the_values_of_the_spec(
    hvdchart: Command, running: FakeCluster, spec: Path, helm: StubProgram, tmp_path: Path
) -> None:
    more, script = (tmp_path / name for name in ("more.yaml", "train.py"))
    more.write_text("values: {code: {files: {a: b}}}\n")
    script.write_text("pass")
    done = hvdchart("deploy", spec, more, "--code", script, "--detach")
    assert done.code == 0, done.errors
    assert installed_values(helm)["code"]["files"] == {"a": "b", "train.py": "pass"}


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["{project}"], "archive"),
        (["--code", "{project}"], "archive"),
        (["--code", "{project}/train.py"], "files"),
    ],
)
def test_a_project_is_its_spec_and_its_code(
    hvdchart: Command,
    running: FakeCluster,
    project: Path,
    helm: StubProgram,
    words: list[str],
    key: str,
) -> None:
    words = [word.format(project=project) for word in words]
    assert hvdchart("deploy", *words, "--detach").code == 0
    assert set(installed_values(helm)["code"]) == {key}
    assert set(yaml.safe_load(hvdchart("render", *words).output)["code"]) == {key}


@pytest.mark.parametrize("more", [[], ["--wait"]], ids=["followed", "waited for"])
def test_run_whose_master_can_never_start_is_followed_no_further(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, more: list[str]
) -> None:
    message = 'failed to pull "docker.io/library/team:1": manifest unknown'
    waiting = {"waiting": {"reason": "ErrImagePull", "message": message}}
    play_run(fake_cluster, job(), pod(f"{JOB}-x", "master", waiting))
    done = hvdchart("deploy", spec, *more)
    assert done.code == 8
    assert "manifest unknown" in done.errors
    assert "hvdchart undeploy hvd -n team" in done.errors
