"""deploy of a project with a Dockerfile: the image is built and brought to the cluster first."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvdchart.image.build import Source
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command, answer_as
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.runs import SPEC, installed_values, upgrades
from tests.waiting import wait_until

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
    for name in ("project", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "Dockerfile").write_text(f"FROM {name}\n")
    spec = tmp_path / "project" / "run.spec.yaml"
    spec.write_text(json.dumps({**SPEC, "image": {"repository": REPOSITORY}}))
    return spec


def words(stub: StubProgram) -> list[str]:
    return [word for word in stub.commands() if word != "info"]


def tag_of(folder: Path, repository: str = REPOSITORY) -> str:
    return Source(folder, repository).reference().rpartition(":")[2]


@pytest.mark.slow
def test_the_image_is_built_pushed_and_deployed_by_its_content(
    hvdchart: Command, project: Path, docker: StubProgram, helm: StubProgram
) -> None:
    helm.answer("upgrade", json.dumps({"version": 3, "manifest": ""}))
    preview = hvdchart("deploy", project, "--diff")
    reference = f"{REPOSITORY}:{tag_of(project.parent)}"
    assert f"would build {reference}, unless it exists\n" in preview.errors
    assert docker.calls == []
    answer_as(helm, "hvd")
    done = hvdchart("deploy", project, "--detach")
    assert done.code == 0, done.errors
    assert words(docker) == ["inspect", "build", "push"]
    assert docker.calls[-1].arguments == ["push", reference]
    image = {"repository": REPOSITORY, "tag": tag_of(project.parent)}
    assert installed_values(helm)["image"] == image
    # The registry may have lost it, and has most layers otherwise.
    docker.answer("inspect")
    again = hvdchart("deploy", project, "--detach", "--set", "nodes.0.count=4")
    assert (again.code, words(docker)[-2:]) == (0, ["inspect", "push"])
    docker.answer("inspect", code=1)
    assert installed_values(helm)["image"] == image
    (project.parent / "train.py").write_text("pass")
    assert hvdchart("deploy", project, "--detach").code == 0
    assert words(docker)[-2:] == ["build", "push"]


@pytest.mark.slow
def test_no_image_is_built_where_the_spec_names_another_or_has_no_folder(
    hvdchart: Command,
    project: Path,
    docker: StubProgram,
    helm: StubProgram,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = (["--set", "image.tag=v1"], ["--set", f"image.digest={DIGEST}"], ["--no-build"])
    for options in names:
        assert hvdchart("deploy", project, "--detach", *options).code == 0
        assert installed_values(helm)["image"].get("tag") != tag_of(project.parent)
    # A spec on standard input may be of another folder than the present one.
    monkeypatch.chdir(project.parent)
    with project.open() as given:
        monkeypatch.setattr("sys.stdin", given)
        assert hvdchart("deploy", "-", "--detach").code == 0
    assert docker.calls == []


@pytest.mark.slow
def test_a_folder_that_is_asked_for_is_built_whatever_the_tag(
    hvdchart: Command, project: Path, docker: StubProgram, helm: StubProgram, tmp_path: Path
) -> None:
    asked = ["--build", tmp_path / "other"]
    done = hvdchart("deploy", project, "--detach", *asked, "--set", "image.tag=v1", "--no-push")
    assert done.code == 0, done.errors
    assert words(docker) == ["inspect", "build"]
    assert installed_values(helm)["image"]["tag"] == tag_of(tmp_path / "other")
    refused = hvdchart("deploy", project, *asked, "--set", f"image.digest={DIGEST}")
    assert (refused.code, "image.digest names another image" in refused.errors) == (9, True)
    assert hvdchart("deploy", project, *asked, "--no-build").code == 2
    (tmp_path / "other" / "Dockerfile").unlink()
    assert hvdchart("deploy", project, *asked).code == 5


@pytest.mark.slow
def test_an_image_is_loaded_unless_all_nodes_have_it(
    hvdchart: Command, fake_cluster: FakeCluster, project: Path, docker: StubProgram, programs: Path
) -> None:
    loader = StubProgram(programs, "kind")
    deploy = ["deploy", project, "--detach", "--set", "image.repository=r"]
    deploy += ["--load-with", "kind load docker-image"]
    reference = f"r:{tag_of(project.parent)}"

    def node(name: str, *images: str) -> Any:
        return {"metadata": {"name": name}, "status": {"images": [{"names": list(images)}]}}

    fake_cluster.put("nodes", node("a", f"docker.io/library/{reference}"), node("b", "other:1"))
    done = hvdchart(*deploy)
    assert done.code == 0, done.errors
    assert [call.arguments for call in loader.calls] == [["load", "docker-image", reference]]
    assert "push" not in words(docker)
    fake_cluster.put("nodes", node("b", f"docker.io/library/{reference}", f"x@sha256:{64 * '0'}"))
    assert f"{reference} is on all nodes already\n" in hvdchart(*deploy).errors
    # A user who may not read nodes loads again.
    fake_cluster.refusals["nodes list"] = (403, "no")
    assert hvdchart(*deploy).code == 0
    assert len(loader.calls) == 2


@pytest.mark.slow
def test_a_failure_leaves_the_run_alone_and_is_not_remembered(
    hvdchart: Command, project: Path, docker: StubProgram, helm: StubProgram
) -> None:
    local = hvdchart("deploy", project, "--set", "image.repository=resnet")
    assert (local.code, docker.calls) == (9, [])
    assert "image.repository is resnet, which names no registry to push to: put" in local.errors
    for failing in ("build", "push"):
        docker.answer(failing, errors="denied: no such user", code=1)
        done = hvdchart("deploy", project, "--detach")
        assert (done.code, upgrades(helm)) == (9, [])
        assert "denied: no such user" in done.errors
        docker.answer(failing)
    assert hvdchart("deploy", project, "--detach").code == 0
    assert words(docker)[-1] == "push"


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
        cwd=Path(__file__).parents[4],
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            if "waiting for the next change" in line:
                assert "no space left" in line
                break
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
    root = Path(__file__).parents[4]
    with (
        docker.hold("build"),
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=root) as process,
    ):
        wait_until(lambda: "build" in docker.commands(), 20, "the builder runs")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        builder = Path(f"{docker.path}.d", "calls").read_text().split()[-1]
        wait_until(lambda: not Path("/proc", builder).exists(), 10, "the builder is ended")
    assert process.returncode == 130, errors
    assert errors.endswith("\nnothing was deployed\n")
    assert upgrades(helm) == []
