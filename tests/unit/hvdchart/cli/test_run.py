"""The command `run`: a script without a spec."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import DONE, ENDED_MASTER, MASTER, job, pod
from tests.unit.hvdchart.played_runs import (
    installed_values,
    list_upgrades,
    play_run,
    report_progress,
)

pytestmark = pytest.mark.timeout(120)


def job_of_run(*conditions: tuple[str, str, str]) -> Any:
    """A Job that the command `run` has made."""
    item = job(*conditions)
    item["spec"]["template"]["metadata"] = {"annotations": {"hvdchart/command": "run"}}
    return item


@pytest.fixture
def namesake(script: Path) -> Path:
    """A script whose run would have the name of another one: two people may have a train.py."""
    return script.rename(script.with_name("hvd.py"))


def test_a_script_runs_on_two_workers_to_its_end(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    play_run(fake_cluster, DONE, ENDED_MASTER)
    done = hvdchart("run", script, "--name", "hvd")
    assert done.code == 0, done.errors
    assert "hvd: finished\n" in done.errors
    sent = installed_values(helm)
    assert sent["master"]["args"] == ["python3", "My_Train.py"]
    assert sent["code"] == {"files": {"My_Train.py": "import json\n"}}
    assert (sent["worker"]["number"], sent["image"]["repository"]) == (2, "python")


def test_the_release_is_named_after_the_script(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    assert hvdchart("run", script, "--detach", "-n", "mine").code == 0
    arguments = list_upgrades(helm)[-1].arguments
    assert arguments[1] == "my-train"
    assert "mine" in arguments


@pytest.mark.parametrize(
    ("file", "name"),
    [("01_train.py", "train"), ("2-_b.py", "b"), (f"{'a' * 44}_b.py", "a" * 44)],
)
def test_a_file_name_that_is_no_name_of_a_run_gives_one(
    hvdchart: Command, script: Path, file: str, name: str
) -> None:
    done = hvdchart("plan", script.rename(script.with_name(file)), "-o", "json")
    assert json.loads(done.output)["name"] == name


def test_the_release_is_read_once_before_the_upgrade_and_once_after_it(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    assert hvdchart("run", script, "--detach").code == 0
    kinds = [request.resource for request in fake_cluster.requests if request.verb == "list"]
    assert kinds.count("jobs") == 2


def test_a_script_gets_its_arguments_as_they_are(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    arguments = ["--epochs", 'a "b" {c}: 😀']
    assert hvdchart("run", script, "--detach", "--", *arguments).code == 0
    assert installed_values(helm)["master"]["args"] == ["python3", "My_Train.py", *arguments]


def test_options_choose_workers_gpus_and_the_image(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    options = ["--workers", "3", "--gpus", "4", "--image", "team/a:1", "--detach"]
    done = hvdchart("run", script, *options)
    assert done.code == 0, done.errors
    sent = installed_values(helm)
    assert (sent["worker"]["number"], sent["worker"]["slots"]) == (3, 4)
    assert sent["worker"]["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert (sent["image"]["repository"], sent["image"]["tag"]) == ("team/a", "1")


def test_options_become_values_of_the_chart(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    more = ["--cpu", "4", "--memory", "6Gi", "--env", "A=b=c", "--secret", "keys"]
    more += ["--fail-on-nan", "--detach", "--force"]
    done = hvdchart("run", script, *more)
    assert done.code == 0, done.errors
    sent = installed_values(helm)
    asked = sent["worker"]["resources"]["requests"]
    assert (asked["cpu"], asked["memory"]) == ("4", "6Gi")
    assert {"name": "A", "value": "b=c"} in sent["worker"]["env"]
    assert sent["worker"]["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert sent["launch"]["failOnNaN"] is True


@pytest.mark.parametrize(
    ("options", "volume", "mount"),
    [
        (
            ["--volume", "data=pvc:scans:/in:ro"],
            {"persistentVolumeClaim": {"claimName": "scans", "readOnly": True}},
            {"name": "data", "mountPath": "/in", "readOnly": True},
        ),
        (
            ["--volume", "data=hostPath:/mnt"],
            {"hostPath": {"path": "/mnt", "type": "DirectoryOrCreate"}},
            {"name": "data", "mountPath": "/data"},
        ),
        (
            ["--volume", "data=nfs:host:/a"],
            {"nfs": {"server": "host", "path": "/a"}},
            {"name": "data", "mountPath": "/data"},
        ),
        (
            ["--volume", "data=nfs:[fd00::1]:/a:/in:ro"],
            {"nfs": {"server": "fd00::1", "path": "/a", "readOnly": True}},
            {"name": "data", "mountPath": "/in", "readOnly": True},
        ),
        (
            ["--secret", "keys:/keys"],
            {"secret": {"secretName": "keys"}},
            {"name": "secret-0", "mountPath": "/keys", "readOnly": True},
        ),
        (
            ["--volume", "cache=emptyDir:/cache"],
            {"emptyDir": {}},
            {"name": "cache", "mountPath": "/cache"},
        ),
    ],
)
def test_volumes_and_secrets_are_mounted(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    helm: StubProgram,
    script: Path,
    options: list[str],
    volume: dict[str, object],
    mount: dict[str, object],
) -> None:
    done = hvdchart("run", script, "--detach", "--force", *options)
    assert done.code == 0, done.errors
    sent = installed_values(helm)
    assert {"name": mount["name"], **volume} in sent["volumes"]
    assert mount in sent["volumeMounts"]


def test_volume_takes_no_name_of_a_secrets(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    options = ["--secret", "tok:/run/tok", "--secret", "key:/run/key"]
    options += ["--volume", "secret-0=emptyDir:/scratch", "--volume", "secret-1=emptyDir:/more"]
    done = hvdchart("run", script, "--detach", "--force", *options)
    assert done.code == 0, done.errors
    sent = installed_values(helm)
    paths = {mount["name"]: mount["mountPath"] for mount in sent["volumeMounts"]}
    mounted = {
        volume["secret"]["secretName"]: paths[volume["name"]]
        for volume in sent["volumes"]
        if "secret" in volume
    }
    assert mounted == {"tok": "/run/tok", "key": "/run/key"}
    assert (paths["secret-0"], paths["secret-1"]) == ("/scratch", "/more")


def test_secret_may_be_variables_and_files(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    options = ["--secret", "a", "--secret", "a:/b", "--secret", "a:/c"]
    assert hvdchart("run", script, "--detach", "--force", *options).code == 0
    sent = installed_values(helm)
    assert sent["worker"]["envFrom"] == [{"secretRef": {"name": "a"}}]
    assert {"/b", "/c"} <= {mount["mountPath"] for mount in sent["volumeMounts"]}


def test_saved_spec_deploys_the_same_run(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path, tmp_path: Path
) -> None:
    spec = tmp_path / "saved.yaml"
    options = ["--cpu", "2", "--volume", "output=pvc:results", "--save-spec", spec]
    options += ["--detach", "--force"]
    assert hvdchart("run", script, *options).code == 0
    ran = installed_values(helm)
    done = hvdchart("deploy", spec, "--code", script, "--detach", "--force")
    assert done.code == 0, done.errors
    deployed = installed_values(helm)
    # Only of a run of `run` do later messages name its options.
    assert ran["master"].pop("podAnnotations") == {"hvdchart/command": "run"}
    assert deployed == ran


def test_saved_spec_replaces_no_file(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    done = hvdchart("run", script, "--save-spec", script, "--detach")
    assert (done.code, helm.calls) == (5, [])


@pytest.mark.parametrize(("options", "is_reported"), [([], True), (["--cpu", "2"], False)])
def test_worker_without_cpu_gets_a_warning_of_its_size(
    hvdchart: Command, script: Path, options: list[str], is_reported: bool
) -> None:
    done = hvdchart("plan", script, *options)
    assert ("250m CPU" in done.errors) is is_reported


def test_deploy_of_a_script_names_the_command_that_runs_it(hvdchart: Command, script: Path) -> None:
    done = hvdchart("deploy", script)
    assert done.code == 2
    assert "hvdchart run" in done.errors


def test_status_of_a_script_names_options_in_place_of_values(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    script_job = job_of_run()
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such host"}}
    play_run(fake_cluster, script_job, pod("hvd-master-1a2b3c4d-x", "master", waiting))
    done = hvdchart("status", "hvd")
    (remedy,) = [line for line in done.output.splitlines() if line.startswith("what to do: ")]
    assert "`--image`, `--set image.pullSecrets`" in remedy


def test_command_of_mode_custom_may_have_variables_of_launchers(
    hvdchart: Command, spec: Path
) -> None:
    settings = ["--set", "train.env.WORLD_SIZE=3", "--set", "launch.mode=custom"]
    done = hvdchart("plan", spec, *settings)
    assert done.code == 0, done.errors
    refused = hvdchart("plan", spec, *settings[:2])
    assert refused.code == 3
    assert "train.env.WORLD_SIZE" in refused.errors


def test_an_active_run_is_not_replaced_by_a_script_of_its_name(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, namesake: Path
) -> None:
    play_run(fake_cluster, job(), MASTER)
    done = hvdchart("run", namesake, "--detach")
    assert (done.code, list_upgrades(helm)) == (7, [])
    assert "run hvd in namespace team is running: --name hvd " in done.errors


@pytest.mark.slow
def test_an_active_run_is_replaced_where_its_name_is_given(
    hvdchart: Command, fake_cluster: FakeCluster, namesake: Path
) -> None:
    play_run(fake_cluster, job(suspend=True), MASTER)
    assert hvdchart("run", namesake, "--detach", "--name", "hvd").code == 0


@pytest.mark.slow
def test_a_finished_run_is_replaced_by_a_script_of_its_name(
    hvdchart: Command, fake_cluster: FakeCluster, namesake: Path
) -> None:
    play_run(fake_cluster, DONE, ENDED_MASTER)
    assert hvdchart("run", namesake, "--detach").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "names"),
    [
        (["none.py"], 5, ["none.py: no such file"]),
        (["{folder}/My_Tarin.py"], 5, ["My_Tarin.py", "'My_Train.py'"]),
        (["{folder}/model.yp"], 5, ["model.yp", "'model.py'"]),
        (["{folder}/start.sh"], 5, ["`hvdchart migrate {folder}/start.sh`"]),
        (["{folder}/start"], 5, ["`hvdchart migrate {folder}/start`"]),
        (["{folder}/project/run.spec.yaml"], 5, ["hvdchart deploy {folder}/project/run.spec.yaml"]),
        (["{folder}"], 5, ["{folder} is a folder", "{script}"]),
        (["{folder}/project"], 5, ["hvdchart deploy {folder}/project"]),
        (["{folder}/real.ipynb"], 5, ["`jupyter nbconvert --to script {folder}/real.ipynb`"]),
        (["{folder}/my script.py"], 5, ["'my script.py'"]),
        (["{script}", "--code", "{folder}/inner"], 5, ["--code {folder}/inner"]),
        (["{script}", "--code", "{folder}/project"], 5, ["--code {folder}/project", "{script}"]),
        (["{folder}/project/_.py"], 5, ["_.py", "--name NAME"]),
        (["{script}", "--name", "a-"], 3, ["'a-'"]),
        (["{script}", "--name", "A"], 3, ["'A'"]),
        (
            ["{script}", "--image", "A:1"],
            3,
            ["--image A:1", "'A'", "lower case"],
        ),
        (["{script}", "--image", "a/b:"], 3, ["--image a/b:", " tag "]),
        (
            ["{script}", "--epochs", "3", "--workers", "4", "-v"],
            2,
            ["hvdchart run {script} --workers 4 -- --epochs 3 -v"],
        ),
        (["{script}", "--nnodes", "4"], 2, ["--nnodes", "--workers"]),
        (["torchrun", "--nproc_per_node=8", "a.py"], 2, ["torchrun", "`hvdchart run a.py`"]),
        (["{script}", "--worker", "4"], 2, ["--worker.", "--workers?", " -- "]),
        (["{script}", "--shm", "8Gi"], 2, ["--shm;", "--set tuning.shm"]),
        (["--epochs", "3", "{script}"], 2, ["--epochs"]),
        (["{script}", "--memory", "8GB"], 3, ["--memory 8GB", " 8Gi?"]),
        (["{script}", "--volume", "data=/mnt"], 3, ["`--volume data=hostPath:/mnt`"]),
        (["{script}", "--memory", "3Q"], 3, ["--memory 3Q", "'3Q'"]),
        (["{script}", "--cpu", "much"], 3, ["--cpu much", "'much'"]),
        (["{script}", "--env", "A"], 3, ["--env A", "NAME=VALUE"]),
        (["{script}", "--env", "RANK=3"], 3, ["--env RANK=3", "the launcher"]),
        (
            ["{script}", "--volume", "a=emptyDir:/b", "--volume", "a=emptyDir:/c"],
            3,
            ["--volume a=emptyDir:/c"],
        ),
        (["{script}", "--env", "A=1", "--env", "A=2"], 3, ["--env A=2", "twice"]),
        (["{script}", "--env", "A=1", "--env", "A=1"], 3, ["--env A=1", "twice"]),
        (["{script}", "--secret", "a", "--secret", "a"], 3, ["--secret a", "twice"]),
        (["{script}", "--secret", "a:/b", "--secret", "a:/b"], 3, ["--secret a:/b", "twice"]),
        (["{script}", "--secret", "a:/b", "--secret", "c:/b"], 3, ["--secret c:/b", "/b"]),
        (["{script}", "--env", "1=2"], 3, ["--env 1=2", "'1'"]),
        (["{script}", "--secret", "A"], 3, ["--secret A", "'A'"]),
        (["{script}", "--secret", "a:b"], 3, ["--secret a:b", "'b'"]),
        (["{script}", "--volume", "data=x:y"], 3, ["--volume data=x:y"]),
        (
            ["{script}", "--volume", "other=pvc:y:ro"],
            3,
            ["`--volume other=pvc:y:/PATH:ro`"],
        ),
        (
            ["{script}", "--set", "values.worker.resources.limits.memory=1Gi"],
            3,
            ["--set values.worker.resources.limits.memory", "1Gi", "3Gi"],
        ),
        (
            ["{script}", "--set", "nodes.0.coun=1"],
            3,
            ["--set nodes.0.coun=1", "nodes[0]", "'count'"],
        ),
    ],
)
def test_what_cannot_run_is_refused_before_helm_is_called(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    helm: StubProgram,
    script: Path,
    arguments: list[str],
    code: int,
    names: list[str],
) -> None:
    folder = script.parent
    (folder / "project").mkdir()
    (folder / "project" / "run.spec.yaml").write_text("{}")
    (folder / "real.ipynb").write_text("{}")
    for name in ("my script.py", "project/_.py"):
        (folder / name).write_text("")
    for name in ("start", "start.sh"):
        (folder / name).write_text("#!/bin/bash\ntorchrun train.py\n")
    words = [word.format(script=script, folder=folder) for word in arguments]
    done = hvdchart("run", *words)
    assert done.code == code, done.errors
    said = " ".join(done.errors.split())
    assert [name for name in names if name.format(script=script, folder=folder) not in said] == []
    assert helm.calls == []


@pytest.mark.parametrize(
    ("line", "is_of_shell"),
    [
        ("#!/home/josh/venv/bin/python3", False),
        ("#!/usr/bin/env -S bash -e", True),
        ("#!/usr/bin/env A=/bin/sh python3", False),
        ("#!/usr/bin/env A=1 zsh", True),
        ("#! /usr/bin/env -u NAME bash", True),
        ("#!/usr/bin/env -S --chdir /work -i bash", True),
        ("#!/usr/bin/env -u bash python3", False),
        ("#! /opt/bin/bash-5.2", True),
        ("#!/bin/sh -e", True),
        ("#!/usr/bin/python3 /bin/sh", False),
    ],
)
def test_script_whose_interpreter_is_a_shell_is_refused(
    hvdchart: Command, script: Path, line: str, is_of_shell: bool
) -> None:
    script.write_text(f"{line}\nprint()\n")
    assert (hvdchart("plan", script).code == 0) is not is_of_shell


@pytest.mark.parametrize("word", ["`worker.slots`", "`image.tag`", "a`worker.slots`b`image.tag`"])
@pytest.mark.parametrize(
    "options",
    [
        "--image {}",
        "--image a/b:{}",
        "--env {}=1",
        "--env RANK={}",
        "--secret {}",
        "--secret a:{}",
        "--secret a:/{0} --secret b:/{0}",
        "--volume {}=pvc:a:/b",
        "--volume data=/{}",
        "--volume data=pvc:{}:/b",
        "--volume other=pvc:{}",
        "--volume a=emptyDir:/{0} --volume b=emptyDir:/{0}",
        "--name {}",
        "--cpu {}",
        "--memory {}",
        "--set {}",
    ],
)
def test_what_the_user_has_written_is_not_reworded(
    hvdchart: Command, script: Path, options: str, word: str
) -> None:
    done = hvdchart("plan", script, *options.format(word).split())
    assert done.code == 3, done.errors
    assert "`--gpus`" not in done.errors
    assert "`--image`" not in done.errors


def test_loss_that_is_nan_is_a_warning_of_the_status(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    play_run(fake_cluster, job_of_run(("Complete", "", "")), ENDED_MASTER)
    report_progress(fake_cluster, {"step": 3, "loss": "nan"})
    done = hvdchart("status", "hvd")
    assert re.search("warning: .*NaN.* `--fail-on-nan` ", done.output)
