"""deploy of a project with a Dockerfile: the image is built and brought to the cluster first."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devtools.common.repository import ROOT
from devtools.common.waiting import wait_until
from hvdchart.image.build_image import Source
from hvdchart.text import NEXT_CHANGE
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.played_runs import SPEC, answer_as, installed_values, list_upgrades

pytestmark = pytest.mark.timeout(120)
REPOSITORY = "host:5000/team/r"
DIGEST = f"sha256:{64 * '0'}"


@pytest.fixture
def project(
    tmp_path: Path, fake_cluster: FakeCluster, helm: StubProgram, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A spec in a folder with a Dockerfile; its image has no tag. Helm installs it as `hvd`."""
    monkeypatch.delenv("HVDCHART_LOAD_WITH", raising=False)
    answer_as(helm, "hvd")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM project\n")
    spec = folder / "run.spec.yaml"
    spec.write_text(json.dumps({**SPEC, "image": {"repository": REPOSITORY}}))
    return spec


def words(stub: StubProgram) -> list[str]:
    return [word for word in stub.commands() if word != "info"]


def tag_of(folder: Path) -> str:
    return Source(folder, REPOSITORY).reference().rpartition(":")[2]


@pytest.fixture
def loader(programs: Path) -> StubProgram:
    """A kind that loads images into the nodes of a cluster."""
    return StubProgram(programs, "kind")


@pytest.fixture
def loading(project: Path) -> list[str | Path]:
    """The words of a deploy that loads the image `r` with kind."""
    options = ["--set", "image.repository=r", "--load-with", "kind load docker-image"]
    return ["deploy", project, "--detach", *options]


def test_preview_says_which_image_it_would_build(
    hvdchart: Command, project: Path, docker: StubProgram, helm: StubProgram
) -> None:
    helm.answer("upgrade", json.dumps({"version": 3, "manifest": ""}))
    preview = hvdchart("deploy", project, "--diff")
    reference = f"{REPOSITORY}:{tag_of(project.parent)}"
    assert reference in preview.errors
    assert docker.calls == []


@pytest.mark.slow
def test_the_image_is_built_pushed_and_deployed_by_its_content(
    hvdchart: Command, project: Path, docker: StubProgram, helm: StubProgram
) -> None:
    done = hvdchart("deploy", project, "--detach")
    assert done.code == 0, done.errors
    tag = tag_of(project.parent)
    assert words(docker) == ["inspect", "build", "push"]
    assert docker.calls[-1].arguments == ["push", f"{REPOSITORY}:{tag}"]
    assert installed_values(helm)["image"] == {"repository": REPOSITORY, "tag": tag}


@pytest.mark.slow
def test_an_image_that_exists_is_not_built_and_is_pushed_again(
    hvdchart: Command, project: Path, docker: StubProgram, helm: StubProgram
) -> None:
    """The registry may have lost it, and has most layers otherwise."""
    docker.answer("inspect")
    done = hvdchart("deploy", project, "--detach")
    assert (done.code, words(docker)) == (0, ["inspect", "push"])
    image = {"repository": REPOSITORY, "tag": tag_of(project.parent)}
    assert installed_values(helm)["image"] == image


@pytest.mark.parametrize(
    "options",
    [["--set", "image.tag=v1"], ["--set", f"image.digest={DIGEST}"]],
    ids=["tag", "digest"],
)
def test_no_image_is_built_where_another_is_named(
    hvdchart: Command, project: Path, docker: StubProgram, helm: StubProgram, options: list[str]
) -> None:
    assert hvdchart("deploy", project, "--detach", *options).code == 0
    assert installed_values(helm)["image"].get("tag") != tag_of(project.parent)
    assert docker.calls == []


def test_no_image_is_built_for_a_spec_on_standard_input(
    hvdchart: Command, project: Path, docker: StubProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be of another folder than the present one."""
    monkeypatch.chdir(project.parent)
    with project.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert hvdchart("deploy", "-", "--detach").code == 0
    assert docker.calls == []


@pytest.mark.slow
def test_an_image_that_the_nodes_have_is_built_alone(
    hvdchart: Command, project: Path, docker: StubProgram, helm: StubProgram
) -> None:
    done = hvdchart("deploy", project, "--detach", "--no-push")
    assert done.code == 0, done.errors
    assert words(docker) == ["inspect", "build"]
    assert installed_values(helm)["image"]["tag"] == tag_of(project.parent)


def node(name: str, *images: str) -> Any:
    return {"metadata": {"name": name}, "status": {"images": [{"names": list(images)}]}}


@pytest.mark.slow
def test_an_image_is_loaded_where_a_node_lacks_it(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    project: Path,
    docker: StubProgram,
    loader: StubProgram,
    loading: list[str | Path],
) -> None:
    reference = f"r:{tag_of(project.parent)}"
    fake_cluster.put("nodes", node("a", f"docker.io/library/{reference}"), node("b", "other:1"))
    done = hvdchart(*loading)
    assert done.code == 0, done.errors
    assert [call.arguments for call in loader.calls] == [["load", "docker-image", reference]]
    assert "push" not in words(docker)


@pytest.mark.slow
def test_an_image_is_not_loaded_where_all_nodes_have_it(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    project: Path,
    docker: StubProgram,
    loader: StubProgram,
    loading: list[str | Path],
) -> None:
    reference = f"r:{tag_of(project.parent)}"
    names = [f"docker.io/library/{reference}", f"x@sha256:{64 * '0'}"]
    fake_cluster.put("nodes", node("a", names[0]), node("b", *names))
    assert reference in hvdchart(*loading).errors
    assert loader.calls == []


@pytest.mark.slow
def test_an_image_is_loaded_by_a_user_who_may_not_read_nodes(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    docker: StubProgram,
    loader: StubProgram,
    loading: list[str | Path],
) -> None:
    fake_cluster.refusals["nodes list"] = (403, "no")
    assert hvdchart(*loading).code == 0
    assert len(loader.calls) == 1


def test_an_image_without_a_registry_is_refused_before_it_is_built(
    hvdchart: Command, project: Path, docker: StubProgram
) -> None:
    done = hvdchart("deploy", project, "--set", "image.repository=resnet")
    assert (done.code, docker.calls) == (9, [])
    assert "`image.repository` is resnet" in done.errors


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["build", "push"])
def test_a_failure_leaves_the_run_alone(
    hvdchart: Command, project: Path, docker: StubProgram, helm: StubProgram, failing: str
) -> None:
    docker.answer(failing, errors="denied: no such user", code=1)
    done = hvdchart("deploy", project, "--detach")
    assert (done.code, list_upgrades(helm)) == (9, [])
    assert "denied: no such user" in done.errors


@pytest.mark.slow
def test_build_watch_builds_at_each_change_also_after_a_failure(
    project: Path, docker: StubProgram
) -> None:
    command = [sys.executable, "-m", "hvdchart", "build", str(project.parent), "--image", "r"]
    docker.answer("build", errors="no space left", code=1)
    with subprocess.Popen(
        [*command, "--watch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        waiting = next(line for line in process.stderr if NEXT_CHANGE in line)
        assert "no space left" in waiting
        docker.answer("build")
        # The watch may begin a moment later.
        names = iter(range(1000))

        def change() -> bool:
            (project.parent / f"{next(names)}.py").write_text("pass")
            return docker.commands().count("build") > 1

        wait_until(change, 20, "the image is built again")
        assert process.stdout.readline().startswith("r:")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


@pytest.mark.slow
def test_an_interrupt_ends_the_builder_and_deploys_nothing(
    project: Path, docker: StubProgram, helm: StubProgram
) -> None:
    command = [sys.executable, "-m", "hvdchart", "deploy", str(project)]
    with (
        docker.hold("build"),
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process,
    ):
        wait_until(lambda: "build" in docker.commands(), 20, "the builder runs")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        builder = Path(f"{docker.path}.d", "calls").read_text().split()[-1]
        wait_until(lambda: not Path("/proc", builder).exists(), 10, "the builder is ended")
    assert process.returncode == 130, errors
    assert errors.endswith("\nnothing was deployed\n")
    assert list_upgrades(helm) == []
