"""run: a script without a spec."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path

import pytest

from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command, answer_as
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.runs import (
    DONE,
    ENDED_MASTER,
    MASTER,
    installed_values,
    job,
    play,
    upgrades,
)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def script(tmp_path: Path, helm: StubProgram, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in a folder with a module; Helm installs it as `hvd`."""
    monkeypatch.delenv("HVDCHART_IMAGE", raising=False)
    answer_as(helm, "hvd")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "model.py").write_text("layers = 2\n")
    path = folder / "My_Train.py"
    path.write_text("import model\n")
    return path


def test_a_script_runs_on_two_workers_to_its_end(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    play(fake_cluster, DONE, ENDED_MASTER)
    done = hvdchart("run", script, "--name", "hvd")
    assert (done.code, "hvd: finished\n" in done.errors) == (0, True), done.errors
    sent = installed_values(helm)
    assert sent["master"]["args"] == ["python", "My_Train.py"]
    assert sent["code"] == {"files": {"My_Train.py": "import model\n"}}
    assert (sent["worker"]["number"], sent["image"]["repository"]) == (2, "horovod-cpu")


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
    assert installed_values(helm)["master"]["args"] == ["python", "My_Train.py", *arguments]


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


def test_requirements_beside_a_script_that_goes_alone_are_told(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    (script.parent / "requirements.txt").write_text("einops\n")
    done = hvdchart("run", script, "--code", script, "--detach")
    assert f"requirements.txt beside {script} is not used: add --code" in done.errors
    assert installed_values(helm)["master"]["args"] == ["python", "My_Train.py"]


@pytest.mark.slow
def test_a_folder_comes_with_a_script_in_it(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, script: Path
) -> None:
    (script.parent / "requirements.txt").write_text("einops\n")
    inner = script.parent / "inner" / "train.py"
    inner.parent.mkdir()
    inner.write_text("pass\n")
    done = hvdchart("run", inner, "--code", script.parent, "--detach")
    assert (done.code, "not used" in done.errors) == (0, False), done.errors
    sent = installed_values(helm)
    assert sent["master"]["args"] == ["python", "inner/train.py"]
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
        (["none.py"], 5, "none.py is not a script: to run a folder"),
        (["{folder}"], 5, "is not a script: to run a folder, use hvdchart deploy"),
        (["{script}", "--code", "{folder}/inner"], 2, "does not contain"),
        (["{script}", "--name", "A"], 3, "expected a name of a-z, 0-9"),
        (["{script}", "--image", "A:1"], 3, "expected an image name"),
        (["{script}", "--epochs", "3"], 2, "No such option"),
        (["{ddp}"], 2, "ddp.py:1 uses torch.distributed, which the default image lacks"),
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
    ddp = script.with_name("ddp.py")
    ddp.write_text("import torch.distributed\n")
    words = [word.format(script=script, folder=script.parent, ddp=ddp) for word in arguments]
    done = hvdchart("run", *words)
    assert done.code == code, done.errors
    assert says in " ".join(done.errors.replace("│", " ").split())
    assert helm.calls == []
