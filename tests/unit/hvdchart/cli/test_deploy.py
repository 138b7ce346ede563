"""deploy and undeploy: phases, logs, previews, values files, names and claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hvdchart.run import watch
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command, answer_as
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.runs import (
    DONE,
    ENDED_MASTER,
    FAILED,
    FAILED_MASTER,
    JOB,
    LABELS,
    MASTER,
    STATEFUL_SET,
    event,
    installed_values,
    job,
    meanwhile,
    play,
    tell,
    upgrades,
)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def running(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A run that trains."""
    monkeypatch.setattr(watch, "READ_EVERY", 0.02)
    fake_cluster.put("events", event(JOB, "Job", "Training", "starts", type="Normal"))
    return play(fake_cluster, job(), MASTER)


def phases(errors: str) -> list[str]:
    """The phases that were printed, without their times."""
    lines = (line.partition(" s  ") for line in errors.splitlines())
    return [phase for head, _, phase in lines if head.startswith("hvdchart: ") and phase]


@pytest.mark.slow
def test_deploy_follows_phases_and_logs_or_the_progress_alone(
    hvdchart: Command, running: FakeCluster, spec: Path
) -> None:
    def end() -> None:
        running.wait_for("jobs", "watch")
        tell(running, {"step": 2})
        running.wait_for("jobs", "list", 8)
        play(running, DONE, ENDED_MASTER)

    with meanwhile(end):
        done = hvdchart("deploy", spec)
    assert (done.code, done.output) == (0, f"[{JOB}-x] first\n[{JOB}-x] last\n"), done.errors
    assert "release hvd in namespace team, revision 2: 2 ranks on 2 workers\n" in done.errors
    assert phases(done.errors) == ["training", "done: finished"]
    watched = {request.resource for request in running.requests if request.verb == "watch"}
    assert "events" in watched, "the cluster's warnings are lines, too"
    assert "replaces" not in done.errors, "the run is the one that was there"
    assert done.errors.endswith("next: hvdchart logs hvd -n team\n")
    play(running, job(), MASTER)
    running.requests.clear()
    with meanwhile(end):
        waited = hvdchart("deploy", spec, "--wait")
    assert (waited.code, waited.output) == (0, ""), waited.errors
    assert "training: step 2" in phases(waited.errors)


@pytest.mark.parametrize(
    ("request_kind", "code", "says"),
    [
        # As Helm does between the two looks at the release.
        (("configmaps", "get"), 0, "the earlier one, which was running at step 120 of 500\n"),
        # Somebody else does it later.
        (("jobs", "watch"), 8, "run hvd was replaced before it ended"),
    ],
)
def test_deploy_says_which_run_it_replaces_and_fails_when_its_own_is_replaced(
    hvdchart: Command,
    running: FakeCluster,
    spec: Path,
    request_kind: tuple[str, str],
    code: int,
    says: str,
) -> None:
    tell(running, {"step": 120, "steps": 500, "secondsLeft": 9})

    def replace() -> None:
        running.wait_for(*request_kind)
        newer = job(("Complete", "", ""), name="hvd-master-2", created="2026-01-02T10:00:00Z")
        running.put("jobs", newer)

    with meanwhile(replace):
        done = hvdchart("deploy", spec, "--wait")
    assert (done.code, says in done.errors) == (code, True)


@pytest.mark.parametrize(
    ("run", "master", "code", "says"),
    [
        (
            DONE,
            ENDED_MASTER,
            0,
            "nothing has changed since the run ended; to run it again: "
            "hvdchart restart hvd --namespace team\n",
        ),
        (FAILED, FAILED_MASTER, 8, "hvdchart: run hvd failed: boom\n"),
        (job(suspend=True), MASTER, 0, "hvd: suspended"),
    ],
)
def test_deploy_of_a_run_that_helm_leaves_as_it_is_reports_its_state(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    spec: Path,
    run: object,
    master: object,
    code: int,
    says: str,
) -> None:
    play(fake_cluster, run, master)
    done = hvdchart("deploy", spec)
    assert done.code == code
    assert says in done.errors


def test_deploy_upgrades_only_what_is_a_release_of_this_chart(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    helm.answer("get", json.dumps({"name": "hvd", "chart": "postgresql", "version": "12.1.0"}))
    done = hvdchart("deploy", spec)
    assert (done.code, upgrades(helm)) == (7, [])
    assert "hvd is the name of a release of chart postgresql in namespace team: " in done.errors
    # One of which Helm could create nothing yet.
    helm.answer("get", json.dumps({"name": "hvd", "chart": "horovod", "version": "0.2.0"}))
    assert hvdchart("deploy", spec, "--detach").code == 0
    (call,) = upgrades(helm)
    options = {"--atomic", "--rollback-on-failure", "--wait", "--create-namespace"}
    assert not options & set(call.arguments)
    assert hvdchart("deploy", spec, "--detach", "--create-namespace").code == 0
    assert "--create-namespace" in upgrades(helm)[-1].arguments


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
    values = installed_values(helm)
    assert (values["cleanup"], values["worker"]["spread"]) == ("Always", "None")
    assert values["code"]["files"] == {"a": "b", "train.py": "pass"}
    for content, code in (("- a list\n", 2), ("wroker: {}\n", 3), ("a: [\n", 3)):
        two.write_text(content)
        assert hvdchart("deploy", spec, "--values", two).code == code, content
    assert len(upgrades(helm)) == 1


def test_a_project_is_its_spec_and_its_code(
    hvdchart: Command, running: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    (spec.parent / "train.py").write_text("pass")
    project = spec.parent
    script = ["--code", project / "train.py"]
    for words in ([project], ["--file", project], ["--code", project], script):
        assert hvdchart("deploy", *words, "--detach").code == 0, words
        code = installed_values(helm)["code"]
        assert set(code) == {"files" if words == script else "archive"}
        assert set(yaml.safe_load(hvdchart("render", *words).output)["code"]) == set(code), words
    assert "code:" not in hvdchart("render", spec).output
    assert "no spec: name a file, or a folder with one" in hvdchart("deploy").errors


SECRET = "---\n# Source: s\napiVersion: v1\nkind: Secret\ndata: {key: private}\n"
BEFORE = f"{SECRET}---\n# Source: j\nkind: Job\nspec: {{a: 1}}\n"


def test_previews_print_what_the_server_has_checked_without_secrets(
    hvdchart: Command, running: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    helm.answer("upgrade", json.dumps({"version": 3, "manifest": BEFORE.replace("1}", "2}")}))
    dry = hvdchart("deploy", spec, "--dry-run")
    assert (dry.code, dry.output) == (0, "---\n# Source: j\nkind: Job\nspec: {a: 2}\n")
    helm.answer("get", BEFORE)
    assert [
        line for line in hvdchart("deploy", spec, "--diff").output.splitlines() if line[:1] in "+-"
    ] == ["--- installed", "+++ deploy", "-spec: {a: 1}", "+spec: {a: 2}"]
    # An archive is told by a digest.
    before, after = (f"---\nbinaryData:\n  a.tgz: {'QUJD' * 100}{end}\n" for end in ("", "QUJD"))
    helm.answer("get", before)
    helm.answer("upgrade", json.dumps({"version": 3, "manifest": after}))
    shown = hvdchart("deploy", spec, "--diff").output
    assert "QUJD" not in shown
    assert "+  a.tgz: (404 characters of base64, sha256 " in shown
    helm.answer("upgrade", json.dumps({"version": 3, "manifest": BEFORE.replace("1}", "2}")}))
    helm.answer("get", errors="Error: release: not found", code=1)
    assert "+kind: Job" in hvdchart("deploy", spec, "--diff").output
    assert ["--dry-run=server" in call.arguments for call in upgrades(helm)] == [True] * 4


def test_undeploy_uninstalls_the_release_and_keeps_claims_where_asked_to(
    hvdchart: Command, running: FakeCluster, helm: StubProgram
) -> None:
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "results"}}
    other = {"kind": "ConfigMap", "metadata": {"name": "other"}}
    helm.answer("get", json.dumps({"worker": {"number": 2}, "extraObjects": [claim, other]}))
    answer_as(helm, "hvd")
    done = hvdchart("undeploy", "hvd", "--keep-data")
    assert (done.code, done.errors) == (
        0,
        "release hvd uninstalled from namespace team\nkept: persistentvolumeclaim results\n",
    )
    metadata = {"name": "results", "annotations": {"helm.sh/resource-policy": "keep"}}
    assert installed_values(helm)["extraObjects"] == [{**claim, "metadata": metadata}, other]
    assert helm.commands() == ["get", "upgrade", "uninstall"]
    assert hvdchart("undeploy", "hvd", "--context", "other", "--namespace", "mine").code == 0
    arguments = helm.calls[-1].arguments
    assert (arguments[:2], arguments[-1]) == (["uninstall", "hvd"], "other")
    assert {"mine", "--wait"} <= set(arguments)
    helm.answer("uninstall", errors="Error: uninstall: release: not found\n", code=1)
    missing = hvdchart("undeploy", "hvd")
    assert missing.code == 7
    assert missing.errors.startswith("hvdchart: no run hvd in namespace team: list all runs: ")


def owned(item: dict[str, Any], namespace: str = "team") -> dict[str, Any]:
    """An object as Helm creates it for release hvd of this namespace."""
    notes = {"meta.helm.sh/release-name": "hvd", "meta.helm.sh/release-namespace": namespace}
    return {**item, "metadata": {**item["metadata"], "annotations": notes}}


def test_undeploy_removes_what_a_release_unknown_to_helm_has_left_but_no_active_run(
    hvdchart: Command, running: FakeCluster, helm: StubProgram
) -> None:
    """Another tool may have installed it, which keeps its releases elsewhere."""
    helm.answer("uninstall", errors="Error: uninstall: release: not found\n", code=1)
    running.put("jobs", owned(job()))
    running.put("statefulsets", owned(STATEFUL_SET))
    running.put("secrets", owned({"metadata": {"name": "theirs", "labels": LABELS}}, "other"))
    done = hvdchart("undeploy", "hvd")
    assert (done.code, running.names("jobs")) == (7, [JOB])
    assert running.names("statefulsets") == ["hvd-worker"]
    assert f"kubectl delete job {JOB} -n team" in done.errors
    running.put("jobs", owned(job(suspend=True)))
    done = hvdchart("undeploy", "hvd", "--keep-data")
    assert (done.code, running.names("jobs"), running.names("secrets")) == (0, [], ["theirs"])
    assert f"jobs {JOB}\n" in done.errors
