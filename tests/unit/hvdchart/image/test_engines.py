"""The engines of containers: which one is chosen, and how it runs a command in an image."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hvdchart.errors import ImageError
from hvdchart.image.engines import choose_engine, run_in
from tests.support.fakes.program import StubProgram

RESTRICTIONS = [
    "--rm",
    "--read-only",
    "--network=none",
    "--tmpfs=/tmp",
    "--entrypoint=",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--env=HOME=/tmp",
    "--user=7:0",
    "image:1",
    "id",
    "-u",
]


def engine(folder: Path, name: str) -> StubProgram:
    """An engine that works and has the image."""
    stub = StubProgram(folder, name)
    stub.answer("run", "output\n", "errors\n", 3)
    stub.answer("from", "container-1\n")
    return stub


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, with what the stubs need: no engine of this machine is there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat"):
        (folder / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture(params=[(0, True), (0, False), (1000, True)], ids=["root", "no runc", "user"])
def runtime(
    request: pytest.FixtureRequest, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The options for a user, with runc installed or not: root uses it where it is installed."""
    user, runc = request.param
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if runc:
        StubProgram(programs, "runc")
    return ["--runtime=runc"] if user == 0 and runc else []


@pytest.fixture
def without_image(programs: Path) -> StubProgram:
    """A podman that does not have the image."""
    podman = engine(programs, "podman")
    podman.answer("inspect", code=1)
    return podman


def test_command_runs_restricted_in_podman(programs: Path, runtime: list[str]) -> None:
    podman = engine(programs, "podman")
    done = run_in("image:1", ["id", "-u"], 7)
    assert (done.returncode, done.stdout, done.stderr) == (3, "output\n", "errors\n")
    assert podman.calls[-1].arguments == [*runtime, "run", *RESTRICTIONS]


def test_podman_is_preferred_to_buildah(programs: Path) -> None:
    engine(programs, "podman")
    buildah = engine(programs, "buildah")
    run_in("image:1", ["id", "-u"], 7)
    assert buildah.commands() == []


def test_command_runs_restricted_in_buildah(programs: Path, runtime: list[str]) -> None:
    """Its working container is deleted."""
    engine(programs, "podman")
    buildah = engine(programs, "buildah")
    run_in("image:1", ["id", "-u"], 7, "buildah")
    assert {"--cap-drop", "all", "7:0", *runtime} <= {*buildah.calls[-2].arguments}
    assert buildah.commands()[-1] == "rm"


def test_machine_without_an_engine_is_reported_with_a_remedy(programs: Path) -> None:
    with pytest.raises(ImageError, match=r"docker, podman, buildah .*--in-cluster"):
        run_in("image:1", ["true"], 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kaniko", "'kaniko' .*docker, podman"),
        ("docker", "^docker "),
        (None, "deploy --code"),
    ],
    ids=["unknown", "not started", "none"],
)
def test_engine_that_cannot_build_is_refused_with_a_remedy(
    programs: Path, name: str | None, message: str
) -> None:
    for program in ("docker", "podman"):
        StubProgram(programs, program).answer("info", code=1)
    with pytest.raises(ImageError, match=message):
        choose_engine(name)


def test_missing_image_is_pulled(without_image: StubProgram) -> None:
    without_image.answer("pull")
    assert run_in("image:1", ["true"], 0).returncode == 3
    assert "pull" in without_image.commands()


def test_image_that_cannot_be_pulled_is_reported_with_the_reason(
    without_image: StubProgram,
) -> None:
    without_image.answer("pull", errors="first\ndenied\n", code=1)
    with pytest.raises(ImageError, match=r"image:1 .*: denied"):
        run_in("image:1", ["true"], 0)
