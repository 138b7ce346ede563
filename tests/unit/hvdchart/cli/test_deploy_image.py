"""deploy of a project with a Dockerfile: the image is built and brought to the cluster first."""

from __future__ import annotations

import json
import os
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
from tests.unit.hvdchart.runs import MASTER, SPEC, installed_values, job, play
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
REPOSITORY = "host:5000/team/r"


@pytest.fixture
def project(tmp_path: Path, helm: StubProgram, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a Dockerfile and a spec whose image has no tag. Helm installs it as `hvd`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HVDCHART_LOAD_WITH", raising=False)
    answer_as(helm, "hvd")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM a\n")
    (folder / "run.spec.yaml").write_text(json.dumps({**SPEC, "image": {"repository": REPOSITORY}}))
    return folder


@pytest.fixture
def docker(programs: Path) -> StubProgram:
    """A Docker that builds, and has no image yet."""
    stub = StubProgram(programs, "docker")
    stub.answer("inspect", code=1)
    return stub


def words(stub: StubProgram) -> list[str]:
    return [word for word in stub.commands() if word != "info"]


def tag_of(folder: Path, repository: str = REPOSITORY) -> str:
    return Source(folder, repository).reference().rpartition(":")[2]


def use_context(kubeconfig: Path, name: str) -> None:
    document = json.loads(kubeconfig.read_text())
    document["contexts"][0]["name"] = document["current-context"] = name
    kubeconfig.write_text(json.dumps(document))


@pytest.mark.slow
def test_the_image_is_built_pushed_and_deployed_by_its_content(
    hvdchart: Command, fake_cluster: FakeCluster, project: Path, docker: StubProgram,
    helm: StubProgram,
) -> None:  # fmt: skip
    spec = project / "run.spec.yaml"
    done = hvdchart("deploy", spec, "--detach")
    assert done.code == 0, done.errors
    assert words(docker) == ["inspect", "build", "push"]
    assert installed_values(helm)["image"] == {"repository": REPOSITORY, "tag": tag_of(project)}
    assert docker.calls[-1].arguments == ["push", f"{REPOSITORY}:{tag_of(project)}"]
    # Other nodes, the same image: not even the builder is asked.
    before = len(docker.calls)
    again = hvdchart("deploy", spec, "--detach", "--set", "nodes.0.count=4")
    assert again.code == 0
    assert len(docker.calls) == before
    assert f"{REPOSITORY}:{tag_of(project)} was pushed already\n" in again.errors
    assert installed_values(helm)["image"]["tag"] == tag_of(project)
    (project / "train.py").write_text("pass")
    assert hvdchart("deploy", spec, "--detach").code == 0
    assert words(docker)[-2:] == ["build", "push"]


DIGEST = f"sha256:{64 * '0'}"


@pytest.mark.parametrize("setting", ["", "image.tag=v1", f"image.digest={DIGEST}"])
def test_an_image_of_its_own_is_not_built_where_the_spec_names_another(
    hvdchart: Command, fake_cluster: FakeCluster, project: Path, docker: StubProgram,
    helm: StubProgram, setting: str,
) -> None:  # fmt: skip
    options = ["--set", setting] if setting else ["--no-build"]
    done = hvdchart("deploy", project / "run.spec.yaml", "--detach", *options)
    assert done.code == 0, done.errors
    assert docker.calls == []
    assert installed_values(helm)["image"].get("tag") != tag_of(project)


@pytest.mark.slow
def test_a_folder_that_is_asked_for_is_built_whatever_the_tag(
    hvdchart: Command, fake_cluster: FakeCluster, project: Path, docker: StubProgram,
    helm: StubProgram, tmp_path: Path,
) -> None:  # fmt: skip
    other = tmp_path / "other"
    other.mkdir()
    (other / "Dockerfile").write_text("FROM b\n")
    spec = project / "run.spec.yaml"
    asked = ["--build", other, "--set", "image.tag=v1", "--no-push"]
    done = hvdchart("deploy", spec, "--detach", *asked)
    assert done.code == 0, done.errors
    assert words(docker) == ["inspect", "build"]
    assert installed_values(helm)["image"]["tag"] == tag_of(other)
    digest = ["--build", other, "--set", f"image.digest={DIGEST}"]
    refused = hvdchart("deploy", spec, "--detach", *digest)
    assert (refused.code, "image.digest names another image" in refused.errors) == (9, True)
    assert hvdchart("deploy", spec, "--build", other, "--no-build").code == 2
    (other / "Dockerfile").unlink()
    assert hvdchart("deploy", spec, "--build", other).code == 5


@pytest.mark.slow
def test_a_cluster_of_kind_gets_the_image_unless_its_nodes_have_it(
    hvdchart: Command, fake_cluster: FakeCluster, project: Path, docker: StubProgram,
    helm: StubProgram, programs: Path, kubeconfig_file: Path,
) -> None:  # fmt: skip
    use_context(kubeconfig_file, "kind-mine")
    kind = StubProgram(programs, "kind")
    spec = project / "run.spec.yaml"
    options = ["--detach", "--set", "image.repository=r"]
    reference = f"r:{tag_of(project)}"

    def node(name: str, *images: str) -> Any:
        return {"metadata": {"name": name}, "status": {"images": [{"names": list(images)}]}}

    fake_cluster.put("nodes", node("a", f"docker.io/library/{reference}"), node("b", "other:1"))
    done = hvdchart("deploy", spec, *options)
    assert done.code == 0, done.errors
    assert [call.arguments[-2:] for call in kind.calls] == [["--name", "mine"]]
    assert "push" not in words(docker)
    fake_cluster.put("nodes", node("b", f"docker.io/library/{reference}", f"x@sha256:{64 * '0'}"))
    before = len(docker.calls)
    again = hvdchart("deploy", spec, *options)
    assert f"{reference} is on all nodes already\n" in again.errors
    assert (len(kind.calls), len(docker.calls)) == (1, before)
    # A user who may not read nodes loads again.
    fake_cluster.refusals["nodes list"] = (403, "no")
    assert hvdchart("deploy", spec, *options).code == 0
    assert len(kind.calls) == 2


def test_a_repository_without_a_registry_is_refused_before_the_build(
    hvdchart: Command, fake_cluster: FakeCluster, project: Path, docker: StubProgram
) -> None:
    done = hvdchart("deploy", project / "run.spec.yaml", "--set", "image.repository=resnet")
    assert done.code == 9
    assert "image.repository is resnet, which names no registry to push to: put REG" in done.errors
    assert docker.calls == []


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["build", "push"])
def test_a_failure_leaves_the_run_alone_and_is_not_remembered(
    hvdchart: Command, fake_cluster: FakeCluster, project: Path, docker: StubProgram,
    helm: StubProgram, failing: str,
) -> None:  # fmt: skip
    play(fake_cluster, job(), MASTER)
    docker.answer(failing, errors="denied: no such user", code=1)
    done = hvdchart("deploy", project / "run.spec.yaml", "--detach")
    assert done.code == 9
    assert "denied: no such user" in done.errors
    assert "upgrade" not in helm.commands()
    docker.answer(failing)
    assert hvdchart("deploy", project / "run.spec.yaml", "--detach").code == 0
    assert words(docker)[-1] == "push"


@pytest.mark.slow
def test_an_interrupt_ends_the_builder_and_deploys_nothing(
    fake_cluster: FakeCluster, project: Path, docker: StubProgram, helm: StubProgram
) -> None:
    command = [sys.executable, "-m", "hvdchart", "deploy", str(project / "run.spec.yaml")]
    with (
        docker.hold("build"),
        subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[4],
            env=dict(os.environ),
        ) as process,
    ):  # fmt: skip
        wait_until(lambda: "build" in docker.commands(), 20, "the builder runs")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        builder = Path(f"{docker.path}.d", "calls").read_text().split()[-1]
        wait_until(lambda: not Path("/proc", builder).exists(), 10, "the builder is ended")
    assert process.returncode == 130, errors
    assert errors.endswith("\nnothing was deployed\n")
    assert "upgrade" not in helm.commands()
