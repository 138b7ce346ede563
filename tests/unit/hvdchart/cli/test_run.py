"""run: a script without a spec."""

from __future__ import annotations

import base64
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import DONE, ENDED_MASTER, MASTER, job, pod
from tests.unit.hvdchart.played_runs import SPEC, answer_as, installed_values, play, tell, upgrades

pytestmark = pytest.mark.timeout(120)


def job_of_run(*conditions: tuple[str, str, str]) -> Any:
    """A Job that the command `run` has made."""
    made = job(*conditions)
    made["spec"]["template"]["metadata"] = {"annotations": {"hvdchart/command": "run"}}
    return made


@pytest.fixture
def script(tmp_path: Path, helm: StubProgram, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in a folder with a module that it does not use; Helm installs it as `hvd`."""
    monkeypatch.delenv("HVDCHART_IMAGE", raising=False)
    answer_as(helm, "hvd")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "model.py").write_text("layers = 2\n")
    path = folder / "My_Train.py"
    path.write_text("import json\n")
    return path


def test_a_script_runs_on_two_workers_to_its_end(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    play(fake_cluster, DONE, ENDED_MASTER)
    done = hvdchart("run", script, "--name", "hvd")
    assert (done.code, "hvd: finished\n" in done.errors) == (0, True), done.errors
    sent = installed_values(helm)
    assert sent["master"]["args"] == ["python3", "My_Train.py"]
    assert sent["code"] == {"files": {"My_Train.py": "import json\n"}}
    assert (sent["worker"]["number"], sent["image"]["repository"]) == (2, "python")


def test_the_release_is_named_after_the_script(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    assert hvdchart("run", script, "--detach", "-n", "mine").code == 0
    arguments = upgrades(helm)[-1].arguments
    assert (arguments[1], "mine" in arguments) == ("my-train", True)


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


@pytest.mark.parametrize(
    ("text", "gpus", "image", "mode"),
    [
        ("import torch.distributed as dist\n", 0, "pytorch/pytorch", "direct"),
        ("import keras, torch\n", 0, "pytorch/pytorch", "direct"),
        ("def f():\n    from tensorflow import keras\n", 1, "tensorflow/tensorflow", "direct"),
        ("import flax\n", 0, "nvcr.io/nvidia/jax", "direct"),
        ("import torch, horovod.torch as hvd\n", 0, "horovod/horovod", None),
        ("import torch_fish\n", 0, "python", "direct"),
    ],
)
def test_image_is_that_of_the_framework_that_the_script_imports(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    helm: StubProgram,
    script: Path,
    text: str,
    gpus: int,
    image: str,
    mode: str | None,
) -> None:
    script.write_text(text)
    done = hvdchart("run", script, "--detach", "--gpus", str(gpus))
    assert (done.code, f"image {image}:" in done.errors) == (0, True), done.errors
    sent = installed_values(helm)
    assert (sent["image"]["repository"], sent["launch"].get("mode")) == (image, mode)
    assert sent["image"]["tag"].endswith("-gpu") == (gpus > 0)


def test_script_in_the_place_of_a_spec_is_planned_with_the_options_of_run(
    hvdchart: Command, script: Path, programs: Path
) -> None:
    options = ["--workers", "3", "--gpus", "2", "--name", "mine", "-o", "json"]
    done = hvdchart("plan", script, *options, "--", "--epochs", "./3")
    assert done.code == 0, done.errors
    planned = json.loads(done.output)
    assert (planned["name"], planned["workers"], planned["ranks"]) == ("mine", 3, 6)
    assert planned["warnings"][0].startswith("`--cpu` and `--memory` are not given: ")


@pytest.mark.parametrize("command", ["render", "doctor"])
def test_commands_that_take_a_script_take_the_options_of_run(
    hvdchart: Command, fake_cluster: FakeCluster, script: Path, programs: Path, command: str
) -> None:
    done = hvdchart(command, script, "--workers", "3", "--image", "A:1")
    assert (done.code, "--image A:1: got 'A'" in done.errors) == (3, True), done.errors


def test_plan_of_a_spec_refuses_values_that_the_chart_refuses(
    hvdchart: Command, spec: Path
) -> None:
    done = hvdchart("plan", spec, "--set", "values.worker.foo=1")
    assert (done.code, "the chart has no key 'foo'" in done.errors) == (3, True)


def test_plan_of_a_spec_that_names_no_image_is_printed(hvdchart: Command, spec: Path) -> None:
    """`discover` writes such a spec: the numbers come before the image."""
    content = json.loads(spec.read_text())
    del content["image"]
    spec.write_text(json.dumps(content))
    assert hvdchart("plan", spec).code == 0


def test_words_of_a_command_among_the_specs_are_refused_with_the_key(
    hvdchart: Command, spec: Path
) -> None:
    done = hvdchart("deploy", spec, "--", "--epochs", "3")
    assert (done.code, "train.command" in done.errors) == (2, True)


def test_script_is_measured_by_its_spec(hvdchart: Command, script: Path) -> None:
    done = hvdchart("bench", script)
    assert (done.code, "--save-spec" in done.errors) == (2, True)


@pytest.mark.parametrize(("command", "instead"), [("plan", "run"), ("dev", "dev")])
def test_folder_without_a_spec_is_refused_with_the_line_for_its_script(
    hvdchart: Command, script: Path, command: str, instead: str
) -> None:
    (script.parent / "train.py").touch()
    done = hvdchart(command, script.parent)
    usual = script.parent / "train.py"
    assert (done.code, f"hvdchart {instead} {usual}\n" in done.errors) == (5, True)


@pytest.mark.parametrize("command", ["plan", "deploy", "dev"])
def test_script_of_a_shell_in_the_place_of_a_spec_is_refused_with_what_reads_it(
    hvdchart: Command, tmp_path: Path, command: str
) -> None:
    line = tmp_path / "start.sh"
    line.write_text("torchrun train.py\n")
    done = hvdchart(command, line)
    assert (done.code, f"hvdchart migrate {line}" in done.errors) == (5, True)


def test_misspelt_script_of_dev_is_refused_with_the_right_one(
    hvdchart: Command, script: Path
) -> None:
    assert "'My_Train.py'" in hvdchart("dev", script.with_name("My_Tarin.py")).errors


def test_gpu_that_nccl_needs_is_asked_for_by_the_option(
    hvdchart: Command, script: Path, programs: Path
) -> None:
    script.write_text("import torch\ntorch.distributed.init_process_group('nccl')\n")
    done = hvdchart("plan", script)
    assert re.search("warning: My_Train.py:2 .*nccl.* `--gpus`", done.output)


def test_script_that_lies_beside_a_spec_and_stays_there_is_told(
    hvdchart: Command, tmp_path: Path, programs: Path
) -> None:
    folder = tmp_path / "mine"
    hvdchart("init", "mine", "--folder", folder)
    alone = hvdchart("plan", folder / "run.spec.yaml")
    assert f"{folder / 'train.py'} stays on this machine" in alone.errors
    assert "stays on this machine" not in hvdchart("plan", folder).errors


def test_plan_of_a_project_reads_its_code(hvdchart: Command, script: Path) -> None:
    script.write_text("import torch\n")
    train = {"train": {"command": ["python", script.name]}}
    (script.parent / "run.spec.yaml").write_text(json.dumps({**SPEC, **train}))
    done = hvdchart("plan", script.parent, "-o", "json")
    assert "trains alone" in done.output, done.errors


def test_option_of_a_script_is_refused_beside_a_spec(
    hvdchart: Command, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HVDCHART_IMAGE", "team/a:1")
    done = hvdchart("plan", script.parent, "--workers", "3")
    assert done.code == 2
    assert "--workers is an option of scripts: in a spec, --set sets nodes.0.count" in done.errors


def test_spec_file_is_refused_beside_a_script(hvdchart: Command, script: Path) -> None:
    done = hvdchart("plan", script, "--file", "more.yaml")
    assert (done.code, "--save-spec" in done.errors) == (2, True)


@pytest.mark.parametrize(
    ("settings", "image"),
    [
        (["nodes.0.gpus=1"], "image tensorflow/tensorflow:2.20.0-gpu,"),
        (["image.repository=team/a", "image.tag=a"], ""),
    ],
)
def test_default_image_is_that_of_what_set_makes_of_the_run(
    hvdchart: Command, script: Path, programs: Path, settings: list[str], image: str
) -> None:
    script.write_text("import tensorflow\n")
    done = hvdchart("plan", script, *(word for each in settings for word in ("--set", each)))
    assert done.code == 0, done.errors
    assert ("image " in done.errors) == bool(image)
    assert image in done.errors


def test_what_the_default_image_lacks_is_told(
    hvdchart: Command, script: Path, programs: Path
) -> None:
    script.write_text("import transformers, wandb\n")
    (script.parent / "requirements.txt").write_text("wandb\n")
    done = hvdchart("plan", script, "--code", script.parent, "-o", "json")
    warning = json.loads(done.output)["warnings"][0]
    assert warning.endswith(f"add transformers to requirements.txt in {script.parent}")


PUBLIC = "tensorflow/tensorflow:2.20.0"


@pytest.mark.parametrize(
    ("text", "image", "lacked"),
    [
        ("import torch\n", PUBLIC, "torch"),
        ("import torch.distributed\n", f"docker.io/{PUBLIC}", "torch"),
        ("import horovod.torch, torch\n", "pytorch/pytorch:2.8.0", "horovod"),
        ("import torch\n", "python:3.12-slim", "torch"),
        ("import torch\n", "pytorch/pytorch:2.8.0", ""),
        ("import horovod.torch, torch\n", "horovod/horovod:latest", ""),
        ("import torch\n", "registry.example/tensorflow/tensorflow:1", ""),
        ("try:\n    import torch\nexcept ImportError:\n    pass\n", PUBLIC, ""),
    ],
)
def test_framework_that_a_named_public_image_lacks_is_told(
    hvdchart: Command, script: Path, programs: Path, text: str, image: str, lacked: str
) -> None:
    script.write_text(text)
    done = hvdchart("plan", script, "--image", image, "-o", "json")
    assert done.code == 0, done.errors
    warnings = [each for each in json.loads(done.output)["warnings"] if "is known to have" in each]
    assert [each.split()[3].rstrip(",") for each in warnings] == ([lacked] if lacked else [])


@pytest.mark.parametrize("package", ["torch", "torchvision"])
def test_framework_that_requirements_bring_is_not_lacked(
    hvdchart: Command, script: Path, programs: Path, package: str
) -> None:
    script.write_text("import torch\n")
    (script.parent / "requirements.txt").write_text(f"{package}\n")
    done = hvdchart("plan", script, "--image", PUBLIC, "--code", script.parent)
    assert (done.code, "is known to have" in done.output) == (0, False)


def test_module_that_the_code_has_is_not_lacked(
    hvdchart: Command, script: Path, programs: Path
) -> None:
    script.write_text("import datasets, trl\n")
    (script.parent / "datasets").mkdir()
    (script.parent / "datasets" / "scans.py").write_text("")
    done = hvdchart("plan", script, "--code", script.parent, "-o", "json")
    assert "add trl to" in json.loads(done.output)["warnings"][0]


@pytest.mark.parametrize(("options", "is_reported"), [([], True), (["--cpu", "2"], False)])
def test_worker_without_cpu_is_told_to_be_small(
    hvdchart: Command, script: Path, programs: Path, options: list[str], is_reported: bool
) -> None:
    done = hvdchart("plan", script, *options)
    line = "a worker requests 250m CPU, and a rank has 1 thread: --cpu gives more\n"
    assert (line in done.errors) is is_reported


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("import torhc\n", "the script imports torhc: did you mean torch?"),
        ("open('data/set.csv')\n", "without data/set.csv beside it: --code"),
        ("open('other.csv')\nopen('../set.csv')\nimport model_of_mine\n", ""),
    ],
    ids=["slip", "data beside the script", "neither"],
)
def test_script_that_would_miss_something_is_warned_of(
    hvdchart: Command, script: Path, programs: Path, text: str, warning: str
) -> None:
    (script.parent / "data").mkdir()
    (script.parent / "data" / "set.csv").touch()
    script.write_text(text)
    warnings = json.loads(hvdchart("plan", script, "-o", "json").output)["warnings"]
    said = [each for each in warnings if "imports" in each or "beside it" in each]
    assert (len(said), warning in "".join(said)) == (bool(warning), True)


def test_script_with_a_wrong_line_is_refused_with_the_line(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    script.write_text("import torch\nx = = 1\n")
    done = hvdchart("run", script)
    assert (done.code, done.errors) == (5, "hvdchart: My_Train.py:2: invalid syntax: x = = 1\n")
    assert helm.calls == []


def test_script_with_a_wrong_line_may_be_right_for_an_image_whose_python_is_not_known(
    hvdchart: Command, script: Path, programs: Path
) -> None:
    script.write_text("x = = 1\n")
    done = hvdchart("plan", script, "--image", "team/a:1", "-o", "json")
    assert done.code == 0
    assert json.loads(done.output)["warnings"][0].startswith(
        "My_Train.py:1: invalid syntax: x = = 1; "
    )


def test_deploy_of_a_script_names_the_command_that_runs_it(
    hvdchart: Command, script: Path, programs: Path
) -> None:
    done = hvdchart("deploy", script)
    assert (done.code, "hvdchart run" in done.errors) == (2, True)


def test_status_of_a_script_names_options_in_place_of_values(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    made = job_of_run()
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such host"}}
    play(fake_cluster, made, pod("hvd-master-1a2b3c4d-x", "master", waiting))
    done = hvdchart("status", "hvd")
    assert "what to do: check `--image`, `--set image.pullSecrets` and that" in done.output


@pytest.mark.parametrize("is_named", [False, True])
def test_script_that_would_lack_a_module_beside_it_is_refused(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path, is_named: bool
) -> None:
    script.write_text("import model\n")
    done = hvdchart("run", script, "--detach", *(["--image", "team/a:1"] if is_named else []))
    # An image of the user's may have the module.
    assert done.code == (0 if is_named else 5)
    assert bool(helm.calls) is is_named
    assert f"--code {script.parent}" in done.errors
    assert ("warning: only" in done.errors) is is_named


def test_module_beside_a_script_may_be_that_of_the_image(
    hvdchart: Command, script: Path, programs: Path
) -> None:
    script.write_text("import torch, tqdm\n")
    (script.parent / "tqdm.py").write_text("")
    assert hvdchart("plan", script).code == 0


@pytest.mark.parametrize(
    ("content", "beside"),
    [
        ("try:\n    import extras\nexcept ImportError:\n    extras = None\n", "extras.py"),
        ("if False:\n    import extras\n", "extras.py"),
        ("def debug():\n    import extras\n", "extras.py"),
        # A package that is installed comes before a folder without __init__.py.
        ("import packaging\n", "packaging/download.py"),
        ("import My_Train\n", "other.py"),
    ],
    ids=["guarded", "condition", "function", "folder", "itself"],
)
def test_script_that_may_do_without_what_is_beside_it_is_planned(
    hvdchart: Command, script: Path, programs: Path, content: str, beside: str
) -> None:
    script.write_text(f"import torch\n{content}")
    file = script.parent / beside
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    done = hvdchart("plan", script)
    assert done.code == 0, done.errors


def test_command_of_mode_custom_may_have_variables_of_launchers(
    hvdchart: Command, spec: Path, programs: Path
) -> None:
    settings = ["--set", "train.env.WORLD_SIZE=3", "--set", "launch.mode=custom"]
    done = hvdchart("plan", spec, *settings)
    assert done.code == 0, done.errors
    refused = hvdchart("plan", spec, *settings[:2])
    assert (refused.code, "train.env.WORLD_SIZE" in refused.errors) == (3, True)


def test_what_a_script_uses_beside_it_and_does_not_take_along_is_told(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    script.write_text("import model\n")
    (script.parent / "requirements.txt").write_text("einops\n")
    done = hvdchart("run", script, "--code", script, "--detach")
    folder = script.parent
    without = "requirements.txt and model.py"
    assert (
        f"warning: only {script} goes to the workers, without {without} beside it: --code {folder}"
        in done.errors
    )
    assert installed_values(helm)["master"]["args"] == ["python3", "My_Train.py"]


def test_what_a_script_of_a_spec_leaves_behind_is_told(
    hvdchart: Command, script: Path, spec: Path, programs: Path
) -> None:
    script.write_text("import model\n")
    done = hvdchart("render", spec, "--code", script)
    assert f"without model.py beside it: --code {script.parent}\n" in done.errors


@pytest.mark.slow
def test_a_folder_comes_with_a_script_in_it(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    (script.parent / "requirements.txt").write_text("einops\n")
    inner = script.parent / "inner" / "train.py"
    inner.parent.mkdir()
    inner.write_text("pass\n")
    done = hvdchart("run", inner, "--code", script.parent, "--detach")
    assert (done.code, "beside it" in done.errors) == (0, False), done.errors
    sent = installed_values(helm)
    assert sent["master"]["args"] == ["python3", "inner/train.py"]
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(sent["code"]["archive"]))) as archive:
        names = {*archive.getnames()}
    assert names == {"My_Train.py", "model.py", "inner/train.py", "requirements.txt"}


@pytest.fixture
def namesake(script: Path) -> Path:
    """A script whose run would have the name of another one: two people may have a train.py."""
    return script.rename(script.with_name("hvd.py"))


def test_an_active_run_is_not_replaced_by_a_script_of_its_name(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, namesake: Path
) -> None:
    play(fake_cluster, job(), MASTER)
    done = hvdchart("run", namesake, "--detach")
    assert (done.code, helm.calls) == (7, [])
    assert done.errors.endswith(
        "run hvd in namespace team is running: --name hvd replaces it, any other --name starts "
        "another run beside it\n"
    )


def test_a_stopped_run_is_not_replaced_by_a_script_of_its_name(
    hvdchart: Command, fake_cluster: FakeCluster, namesake: Path
) -> None:
    play(fake_cluster, job(suspend=True), MASTER)
    assert hvdchart("run", namesake, "--detach").code == 7


@pytest.mark.slow
def test_an_active_run_is_replaced_where_its_name_is_given(
    hvdchart: Command, fake_cluster: FakeCluster, namesake: Path
) -> None:
    play(fake_cluster, job(suspend=True), MASTER)
    assert hvdchart("run", namesake, "--detach", "--name", "hvd").code == 0


@pytest.mark.slow
def test_a_finished_run_is_replaced_by_a_script_of_its_name(
    hvdchart: Command, fake_cluster: FakeCluster, namesake: Path
) -> None:
    play(fake_cluster, DONE, ENDED_MASTER)
    assert hvdchart("run", namesake, "--detach").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["none.py"], 5, "none.py: no such file"),
        (["{folder}/My_Tarin.py"], 5, "My_Tarin.py: no such file (did you mean 'My_Train.py'?)"),
        (["{folder}/model.yp"], 5, "model.yp: no such file (did you mean 'model.py'?)"),
        (["{folder}/start.sh"], 5, "`hvdchart migrate {folder}/start.sh`"),
        (["{folder}/start"], 5, "`hvdchart migrate {folder}/start`"),
        (["{folder}/project/run.spec.yaml"], 5, "hvdchart deploy {folder}/project/run.spec.yaml"),
        (["{folder}"], 5, "is a folder: name a script in it, such as {script}"),
        (["{folder}/project"], 5, "or to run the project: hvdchart deploy {folder}/project"),
        (["{folder}/real.ipynb"], 5, "real.ipynb` makes one of it"),
        (["{folder}/my script.py"], 5, "my script.py: the name"),
        (["{script}", "--code", "{folder}/inner"], 5, "inner: no such file or folder"),
        (["{script}", "--code", "{folder}/project"], 5, "does not contain"),
        (["{script}", "--name", "A"], 3, "expected a name of a-z, 0-9"),
        (
            ["{script}", "--image", "A:1"],
            3,
            "--image A:1: got 'A'; expected an image in lower case",
        ),
        (["{script}", "--image", "a/b:"], 3, "--image a/b:: its tag is empty; expected a tag"),
        (
            ["{script}", "--epochs", "3", "--workers", "4", "-v"],
            2,
            "No such option: --epochs. Arguments of the script go after --: hvdchart run {script} "
            "--workers 4 -- --epochs 3 -v",
        ),
        (["{script}", "--nnodes", "4"], 2, "No such option: --nnodes; write --workers. Arg"),
        (["torchrun", "--nproc_per_node=8", "a.py"], 2, "no script: `hvdchart run a.py` starts"),
        (["{script}", "--worker", "4"], 2, "No such option: --worker. Did you mean --workers? Arg"),
        (["{script}", "--shm", "8Gi"], 2, "No such option: --shm; write --set tuning.shm"),
        (["--epochs", "3", "{script}"], 2, "No such option: --epochs."),
        (["{script}", "--memory", "8GB"], 3, "such as 16Gi; did you mean 8Gi?"),
        (["{script}", "--volume", "data=/mnt"], 3, "`--volume data=hostPath:/mnt` for a folder of"),
        (["{script}", "--memory", "3Q"], 3, "--memory 3Q: got '3Q'; expected an amount of memory"),
        (["{script}", "--cpu", "much"], 3, "--cpu much: got 'much'; expected a number of CPUs"),
        (["{script}", "--env", "A"], 3, "--env A: there is no =; expected NAME=VALUE"),
        (["{script}", "--env", "RANK=3"], 3, "--env RANK=3: the launcher sets that variable"),
        (["{script}", "--volume", "a=emptyDir:/b", "--volume", "a=emptyDir:/c"], 3, "given twice"),
        (["{script}", "--env", "1=2"], 3, "--env 1=2: got '1'; expected the name of"),
        (["{script}", "--secret", "A"], 3, "--secret A: got 'A'; expected the name of"),
        (["{script}", "--secret", "a:b"], 3, "--secret a:b: got 'b'; expected an absolute path"),
        (["{script}", "--volume", "data=x:y"], 3, "--volume data=x:y: this is no volume; expected"),
        (
            ["{script}", "--volume", "other=pvc:y:ro"],
            3,
            "--volume other=pvc:y:ro: it has no path; expected `--volume other=pvc:y:/PATH:ro`",
        ),
        (
            ["{script}", "--set", "values.worker.resources.limits.memory=1Gi"],
            3,
            "the limit 1Gi is below the request 3Gi; expected at least 3Gi",
        ),
        (["{script}", "--set", "nodes.0.coun=1"], 3, "--set nodes.0.coun=1: nodes[0]: unknown key"),
    ],
)
def test_what_cannot_run_is_refused_before_helm_is_called(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    helm: StubProgram,
    script: Path,
    arguments: list[str],
    code: int,
    says: str,
) -> None:
    folder = script.parent
    (folder / "project").mkdir()
    (folder / "project" / "run.spec.yaml").write_text("{}")
    (folder / "real.ipynb").write_text("{}")
    (folder / "my script.py").write_text("")
    for name in ("start", "start.sh"):
        (folder / name).write_text("#!/bin/bash\ntorchrun train.py\n")
    words = [word.format(script=script, folder=folder) for word in arguments]
    done = hvdchart("run", *words)
    assert done.code == code, done.errors
    assert says.format(script=script, folder=folder) in " ".join(done.errors.split())
    assert helm.calls == []


def test_script_that_is_not_like_the_misspelt_one_is_not_suggested(
    hvdchart: Command, script: Path
) -> None:
    """All names of scripts end alike."""
    script.with_name("spawn.py").touch()
    done = hvdchart("run", script.with_name("trian.py"))
    assert (done.code, "did you mean" in done.errors) == (5, False)


def test_loss_that_is_nan_is_a_warning_of_the_status(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    play(fake_cluster, job_of_run(("Complete", "", "")), ENDED_MASTER)
    tell(fake_cluster, {"step": 3, "loss": "nan"})
    done = hvdchart("status", "hvd")
    assert re.search("warning: .*NaN.* `--fail-on-nan` ", done.output)
