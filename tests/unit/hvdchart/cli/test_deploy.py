"""deploy and undeploy: phases, previews, values files, names, claims."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from hvdchart.plan.planner import make_plan
from hvdchart.run import watch
from hvdchart.spec.load import load_spec
from hvdchart.values.check import checked_values
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command, answer_as
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.cli.test_control import VALUES
from tests.unit.hvdchart.cli.test_run import DONE, ENDED_MASTER, play, upgraded
from tests.unit.hvdchart.releases import store_release
from tests.unit.hvdchart.runs import JOB, MASTER, event, job

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def running(fake_cluster: FakeCluster) -> FakeCluster:
    """A run that trains."""
    fake_cluster.put("events", event(JOB, "Job", "Training", "starts", type="Normal"))
    return play(fake_cluster, job(), MASTER)


def phases(errors: str) -> list[str]:
    """The phases that were printed, without their times."""
    lines = (line.partition(" s  ") for line in errors.splitlines())
    return [phase for head, _, phase in lines if head.startswith("hvdchart: ") and phase]


def sent_values(helm: StubProgram) -> Any:
    (call,) = [call for call in helm.calls if call.arguments[0] == "upgrade"]
    return json.loads(call.input)


@pytest.mark.slow
def test_deploy_follows_the_phases_and_the_logs(
    hvdchart: Command, running: FakeCluster, spec: Path
) -> None:
    def end() -> None:
        running.wait_for("jobs", "watch")
        running.wait_for("events", "list")
        play(running, DONE, ENDED_MASTER)

    ending = threading.Thread(target=end)
    ending.start()
    done = hvdchart("deploy", spec)
    ending.join()
    assert done.code == 0, done.errors
    assert f"[{JOB}-x] first\n" in done.output
    assert phases(done.errors)[-1] == "done: finished"
    assert "replaces" not in done.errors, "the run is the one that was there"
    seconds = [float(line.split()[1]) for line in done.errors.splitlines() if " s  " in line]
    assert seconds == sorted(seconds)
    assert seconds[-1] < 3600, "since the start of the command"


@pytest.mark.slow
def test_deploy_waits_with_progress_and_without_logs(
    hvdchart: Command, running: FakeCluster, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "READ_EVERY", 0.02)

    def tell(step: int) -> None:
        data = {"job": JOB, "progress": json.dumps({"step": step})}
        running.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": data})

    def end() -> None:
        running.wait_for("pods", "watch")
        tell(2)
        running.wait_for("jobs", "list", 8)
        play(running, DONE, ENDED_MASTER)

    tell(1)
    ending = threading.Thread(target=end)
    ending.start()
    done = hvdchart("deploy", spec, "--wait")
    ending.join()
    assert (done.code, done.output) == (0, ""), done.errors
    assert "training: step 2" in phases(done.errors)
    assert "hvd: finished\n" in done.errors


def test_deploy_of_a_run_that_has_ended_prints_its_end_at_once(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path
) -> None:
    play(fake_cluster, DONE, ENDED_MASTER)
    done = hvdchart("deploy", spec, "--wait")
    assert done.code == 0
    assert phases(done.errors) == ["done: finished"]
    assert not [request for request in fake_cluster.requests if request.resource == "log"]


def test_deploy_says_which_run_it_replaces(
    hvdchart: Command, running: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    data = {"job": JOB, "progress": json.dumps({"step": 120, "steps": 500, "secondsLeft": 9})}
    running.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": data})
    newer = job(("Complete", "", ""), name="hvd-master-2", created="2026-01-02T10:00:00Z")

    def replace() -> None:
        # As Helm does between the two looks at the release.
        running.wait_for("configmaps", "get")
        running.put("jobs", newer)

    replacing = threading.Thread(target=replace)
    replacing.start()
    done = hvdchart("deploy", spec, "--wait")
    replacing.join()
    assert "hvdchart: replaces the run that was running at step 120 of 500\n" in done.errors


def test_deploy_never_rolls_back(
    hvdchart: Command, running: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    helm.answer("upgrade", errors="Error: UPGRADE FAILED: timed out", code=1)
    assert hvdchart("deploy", spec).code == 6
    assert not {"--atomic", "--rollback-on-failure", "--wait"} & set(upgraded(helm))
    assert "rollback" not in helm.commands()


def test_a_name_of_another_chart_is_refused(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    helm.answer("get", json.dumps({"name": "hvd", "chart": "postgresql", "version": "12.1.0"}))
    done = hvdchart("deploy", spec)
    assert done.code == 7
    assert done.errors.endswith(
        "hvdchart: hvd is the name of a release of chart postgresql in namespace team: "
        "choose another with --set name=NAME, or under `run` with --name NAME\n"
    )
    assert "upgrade" not in helm.commands()


def test_a_release_of_this_chart_that_is_half_installed_is_upgraded(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    helm.answer("get", json.dumps({"name": "hvd", "chart": "horovod", "version": "0.2.0"}))
    assert hvdchart("deploy", spec, "--detach").code == 0
    (call,) = [call for call in helm.calls if call.arguments[0] == "get"]
    assert call.arguments[:3] == ["get", "metadata", "hvd"]


def test_values_files_are_merged_in_order_and_code_last(
    hvdchart: Command, running: FakeCluster, spec: Path, helm: StubProgram, tmp_path: Path
) -> None:
    one, two, script = (tmp_path / name for name in ("one.yaml", "two.yaml", "train.py"))
    one.write_text("cleanup: Never\nworker: {spread: None}\ncode: {files: {a: b}}\n")
    two.write_text("cleanup: Always\n")
    script.write_text("pass")
    files = ["--values", one, "--values", two]
    done = hvdchart("deploy", spec, *files, "--code", script, "--detach")
    assert done.code == 0, done.errors
    values = sent_values(helm)
    assert (values["cleanup"], values["worker"]["spread"]) == ("Always", "None")
    assert values["code"]["files"] == {"a": "b", "train.py": "pass"}


@pytest.mark.parametrize(
    ("content", "code"), [("- a list\n", 2), ("wroker: {}\n", 3), ("a: [\n", 3), (None, 5)]
)
def test_wrong_values_files_are_refused(
    hvdchart: Command,
    running: FakeCluster,
    spec: Path,
    helm: StubProgram,
    tmp_path: Path,
    content: str | None,
    code: int,
) -> None:
    file = tmp_path / "values.yaml"
    if content is not None:
        file.write_text(content)
    done = hvdchart("deploy", spec, "--values", file)
    assert done.code == code, done.errors
    assert "upgrade" not in helm.commands()


SECRET = "---\n# Source: s\napiVersion: v1\nkind: Secret\ndata: {key: private}\n"
BEFORE = f"{SECRET}---\n# Source: j\nkind: Job\nspec: {{a: 1}}\n"


def test_dry_run_prints_what_the_server_has_checked_without_secrets(
    hvdchart: Command, running: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    helm.answer("upgrade", json.dumps({"version": 3, "manifest": BEFORE.replace("1}", "2}")}))
    done = hvdchart("deploy", spec, "--dry-run")
    assert done.code == 0, done.errors
    assert done.output == "---\n# Source: j\nkind: Job\nspec: {a: 2}\n"
    assert "--dry-run=server" in upgraded(helm)
    assert len([call for call in helm.calls if call.arguments[0] == "upgrade"]) == 1


def test_diff_prints_what_would_change(
    hvdchart: Command, running: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    helm.answer("upgrade", json.dumps({"version": 3, "manifest": BEFORE.replace("1}", "2}")}))
    helm.answer("get", BEFORE)
    done = hvdchart("deploy", spec, "--diff")
    assert done.code == 0
    assert [line for line in done.output.splitlines() if line[:1] in "+-"] == [
        "--- installed", "+++ deploy", "-spec: {a: 1}", "+spec: {a: 2}",
    ]  # fmt: skip
    helm.answer("get", errors="Error: release: not found", code=1)
    assert "+kind: Job" in hvdchart("deploy", spec, "--diff").output


def keep_as_deployed(cluster: FakeCluster, run: Any, spec: Path) -> None:
    """Let Helm have installed the spec as revision 7, and the run be its Job."""
    metadata = run["metadata"]
    metadata = {**metadata, "labels": {**metadata["labels"], "horovod/run": "a"}}
    kept = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}}
    play(cluster, {**run, **kept, "spec": run["spec"]}, ENDED_MASTER)
    values = checked_values(make_plan(load_spec(spec)))
    info = {"status": "deployed"}
    store_release(cluster, 7, {"config": values, "manifest": json.dumps(kept), "info": info})


@pytest.mark.slow
def test_an_unchanged_release_is_not_upgraded(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    keep_as_deployed(fake_cluster, job(), spec)
    done = hvdchart("deploy", spec, "--detach")
    assert (done.code, done.errors.splitlines()[-2:]) == (
        0,
        [
            "release hvd in namespace team, unchanged since revision 7: 2 ranks on 2 workers",
            "next: hvdchart logs hvd --namespace team",
        ],
    )
    assert helm.calls == []
    changed = hvdchart("deploy", spec, "--detach", "--set", "train.command=[other]")
    assert "revision 2: 2 ranks on 2 workers" in changed.errors
    assert helm.commands() == ["upgrade"]


@pytest.mark.slow
def test_an_unchanged_release_whose_run_has_ended_can_be_run_again(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    keep_as_deployed(fake_cluster, DONE, spec)
    done = hvdchart("deploy", spec)
    assert done.code == 0
    assert "; to run it again: hvdchart restart hvd --namespace team\n" in done.errors
    assert "hvd: finished\n" in done.errors, "it is followed as ever"
    assert helm.calls == []


@pytest.mark.parametrize("option", ["--dry-run", "--diff"])
def test_a_preview_of_an_unchanged_release_asks_helm(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram, option: str
) -> None:
    keep_as_deployed(fake_cluster, job(), spec)
    helm.answer("upgrade", json.dumps({"version": 8, "manifest": BEFORE}))
    helm.answer("get", BEFORE)
    done = hvdchart("deploy", spec, option)
    assert (done.code, "unchanged" in done.errors) == (0, False)
    assert "--dry-run=server" in upgraded(helm)


def test_undeploy_keeps_claims_of_the_release_where_asked_to(
    hvdchart: Command, running: FakeCluster, helm: StubProgram
) -> None:
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "results"}}
    other = {"kind": "ConfigMap", "metadata": {"name": "other"}}
    helm.answer("get", json.dumps({**VALUES, "extraObjects": [claim, other]}))
    answer_as(helm, "hvd")
    done = hvdchart("undeploy", "hvd", "--keep-data")
    assert (done.code, done.errors) == (
        0,
        "release hvd uninstalled from namespace team\nkept: persistentvolumeclaim results\n",
    )
    metadata = {"name": "results", "annotations": {"helm.sh/resource-policy": "keep"}}
    assert sent_values(helm)["extraObjects"] == [{**claim, "metadata": metadata}, other]
    assert helm.commands() == ["get", "upgrade", "uninstall"]


def test_undeploy_without_claims_of_its_own_upgrades_nothing(
    hvdchart: Command, running: FakeCluster, helm: StubProgram
) -> None:
    helm.answer("get", json.dumps(VALUES))
    assert hvdchart("undeploy", "hvd", "--keep-data").code == 0
    assert helm.commands() == ["get", "uninstall"]
