"""Bringing images to a cluster: programs that record their calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.fixtures import Command
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.image.test_build import commands

SPEC = """\
apiVersion: hvdchart/v1
name: r   # mine
nodes: [{name: a, count: 1, gpus: 1}]
image: {repository: old, tag: old}
train: {command: [a]}
"""


def test_the_image_is_pushed_and_named_in_the_spec(
    hvdchart: Command, folder: Path, docker: StubProgram
) -> None:
    spec = folder.parent / "run.spec.yaml"
    spec.write_text(SPEC)
    done = hvdchart("build", folder, "--image", "team/r", "--push", "--spec", spec)
    assert done.code == 0, done.errors
    reference = done.output.strip()
    assert commands(docker)[-1] == ["push", reference]
    tag = reference.partition(":")[2]
    assert spec.read_text().splitlines()[1] == "name: r   # mine"
    assert f"image: {{repository: team/r, tag: {tag}}}" in spec.read_text().replace('"', "")


def test_a_push_that_is_refused_names_the_remedy(
    hvdchart: Command, folder: Path, docker: StubProgram
) -> None:
    docker.answer("push", errors="denied: requested access to the resource is denied\n", code=1)
    done = hvdchart("build", folder, "--image", "host.example/r", "--push")
    assert done.code == 9
    assert "is denied; log in with `docker login host.example`" in done.errors


@pytest.mark.slow
def test_any_command_can_load_the_image(
    hvdchart: Command, folder: Path, docker: StubProgram, programs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    minikube = StubProgram(programs, "minikube")
    done = hvdchart("build", folder, "--image", "r", "--load-with", "minikube -p 'my one' load")
    assert done.code == 0, done.errors
    reference = done.output.strip()
    assert [call.arguments for call in minikube.calls] == [["-p", "my one", "load", reference]]
    minikube.answer("my one", errors="no such profile", code=3)
    monkeypatch.setenv("HVDCHART_LOAD_WITH", "minikube -p 'my one' load")
    refused = hvdchart("build", folder, "--image", "r")
    assert refused.code == 9
    assert "`minikube -p my one load` ended with exit code 3: no such profile" in refused.errors
    missing = hvdchart("build", folder, "--image", "r", "--load-with", "nowhere load")
    assert "no program 'nowhere' is on PATH" in missing.errors
    assert hvdchart("build", folder, "--image", "r", "--load-with", "'a").code == 2


@pytest.mark.slow
def test_the_image_is_saved_to_an_archive(
    hvdchart: Command, folder: Path, docker: StubProgram
) -> None:
    archive = folder.parent / "image.tar"
    done = hvdchart("build", folder, "--image", "r", "--save", archive)
    assert done.code == 0, done.errors
    assert commands(docker)[-1] == ["save", "-o", str(archive), done.output.strip()]
    docker.answer("save", errors="no space\n", code=1)
    failed = hvdchart("build", folder, "--image", "r", "--save", archive)
    assert failed.code == 9
    assert f"cannot save {done.output.strip()}: no space" in failed.errors


@pytest.mark.slow
def test_the_image_is_loaded_into_kind(
    hvdchart: Command, folder: Path, docker: StubProgram, programs: Path
) -> None:
    missing = hvdchart("build", folder, "--image", "r", "--kind", "mine")
    assert (missing.code, "no program kind is on PATH" in missing.errors) == (9, True)
    kind = StubProgram(programs, "kind")
    assert hvdchart("build", folder, "--image", "r", "--kind", "mine").code == 0
    (call,) = kind.calls
    assert call.arguments[:2] == ["load", "image-archive"]
    assert call.arguments[-2:] == ["--name", "mine"]
    kind.answer("load", errors="ERROR: no nodes found", code=1)
    refused = hvdchart("build", folder, "--image", "r", "--kind", "mine")
    assert "into kind: ERROR: no nodes found" in refused.errors
