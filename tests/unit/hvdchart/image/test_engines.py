"""The choice of a container engine and its calls, by programs that record them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hvdchart.errors import ImageError
from hvdchart.image import engines
from hvdchart.image.build import choose_engine
from hvdchart.image.engines import is_working, run_in, runtime_options, working_engines
from tests.fakes.program import StubProgram

RESTRICTIONS = [
    *("--rm", "--read-only", "--network=none", "--tmpfs=/tmp", "--entrypoint=", "--cap-drop=ALL"),
    *("--security-opt=no-new-privileges", "--env=HOME=/tmp", "--user=7:0", "image:1", "id", "-u"),
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


def test_engine_works_when_its_info_succeeds(programs: Path) -> None:
    assert not is_working("docker")
    docker = engine(programs, "docker")
    assert is_working("docker")
    docker.answer("info", code=1)
    assert not is_working("docker")
    assert [call.arguments for call in docker.calls] == [["info"], ["info"]]


def test_engines_are_tried_in_order_of_preference(programs: Path) -> None:
    for name in ("buildah", "podman", "docker"):
        engine(programs, name)
    assert working_engines() == ["docker", "podman", "buildah"]


def test_an_engine_that_is_unknown_or_does_not_work_is_refused(programs: Path) -> None:
    with pytest.raises(
        ImageError, match="'kaniko' is not a builder: use one of docker, podman, bu"
    ):
        choose_engine("kaniko")
    for name in ("docker", "podman", "buildah"):
        StubProgram(programs, name).answer("info", code=1)
    with pytest.raises(ImageError, match="docker does not work here: install or start it"):
        choose_engine("docker")
    with pytest.raises(ImageError, match="without an image of its own: deploy --code"):
        choose_engine(None)


@pytest.mark.parametrize(("user", "runc"), [(0, True), (0, False), (1000, True)])
def test_runc_is_used_by_root_where_it_is_installed(
    programs: Path, monkeypatch: pytest.MonkeyPatch, user: int, runc: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if runc:
        StubProgram(programs, "runc")
    expected = ["--runtime=runc"] if user == 0 and runc else []
    assert runtime_options() == expected
    podman, buildah = engine(programs, "podman"), engine(programs, "buildah")
    run_in("image:1", ["id", "-u"], 7, "podman")
    assert podman.calls[-1].arguments == [*expected, "run", *RESTRICTIONS]
    run_in("image:1", ["id", "-u"], 7, "buildah")
    isolation = ["--isolation", "oci", *expected] if expected else []
    assert buildah.calls[-2].arguments == [
        *("run", "--user", "7:0", "--env", "HOME=/tmp", "--cap-drop", "all", *isolation),
        *("container-1", "--", "id", "-u"),
    ]


def test_docker_runs_the_command_restricted_and_returns_its_result(programs: Path) -> None:
    docker = engine(programs, "docker")
    done = run_in("image:1", ["id", "-u"], 7)
    assert (done.returncode, done.stdout, done.stderr) == (3, "output\n", "errors\n")
    assert [call.arguments for call in docker.calls] == [
        ["info"],
        ["inspect", "--type=image", "image:1"],
        ["run", *RESTRICTIONS],
    ]


def test_buildah_deletes_its_container(programs: Path) -> None:
    buildah = engine(programs, "buildah")
    assert run_in("image:1", ["true"], 0).stdout == "output\n"
    assert buildah.commands() == ["info", "inspect", "from", "run", "rm"]
    assert buildah.calls[2].arguments == ["from", "--pull-never", "image:1"]
    assert buildah.calls[-1].arguments == ["rm", "container-1"]


def test_buildah_that_cannot_create_a_container_is_an_error(programs: Path) -> None:
    buildah = engine(programs, "buildah")
    buildah.answer("from", errors="no space\n", code=1)
    with pytest.raises(ImageError, match=r"cannot create a container of image:1: no space$"):
        run_in("image:1", ["true"], 0)


def test_missing_image_is_pulled(programs: Path) -> None:
    docker = engine(programs, "docker")
    docker.answer("inspect", code=1)
    assert run_in("image:1", ["true"], 0).returncode == 3
    assert docker.commands() == ["info", "inspect", "pull", "run"]
    assert docker.calls[2].arguments == ["pull", "image:1"]


def test_next_engine_is_used_when_one_cannot_pull(programs: Path) -> None:
    docker, podman = engine(programs, "docker"), engine(programs, "podman")
    docker.answer("inspect", code=1)
    docker.answer("pull", code=1)
    run_in("image:1", ["true"], 0)
    assert podman.commands()[-1] == "run"


@pytest.mark.parametrize(
    ("output", "errors", "reason"),
    [
        ("", "first\nno such host\n", "no such host"),
        ("denied\n", "", "denied"),
        ("", "", "it printed no reason"),
    ],
)
def test_image_that_no_engine_can_pull_is_an_error_with_each_reason(
    programs: Path, output: str, errors: str, reason: str
) -> None:
    for name in ("docker", "podman"):
        stub = engine(programs, name)
        stub.answer("inspect", code=1)
        stub.answer("pull", output, errors, 1)
    with pytest.raises(ImageError) as raised:
        run_in("image:1", ["true"], 0)
    assert str(raised.value) == (
        f"image:1 is not on this machine and cannot be pulled: docker: {reason}; podman: {reason}"
    )


def test_named_engine_is_the_only_one_used(programs: Path) -> None:
    docker, podman = engine(programs, "docker"), engine(programs, "podman")
    run_in("image:1", ["true"], 0, "podman")
    assert docker.calls == []
    podman.answer("info", code=1)
    with pytest.raises(ImageError, match="podman does not work here: install or start it"):
        run_in("image:1", ["true"], 0, "podman")


def test_machine_without_an_engine_is_an_error_with_a_remedy(programs: Path) -> None:
    with pytest.raises(ImageError, match=r"none of docker, podman, buildah works here: .*--in-cl"):
        run_in("image:1", ["true"], 0)


@pytest.mark.slow
def test_engine_that_hangs_is_an_error(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = engine(programs, "docker")
    docker.path.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    monkeypatch.setattr(engines, "_TIME_LIMIT", 0.1)
    with pytest.raises(ImageError, match=r"`docker info \.\.\.` took over 0.1 s"):
        run_in("image:1", ["true"], 0)


def test_engines_read_no_input(programs: Path) -> None:
    docker = engine(programs, "docker")
    run_in("image:1", ["true"], 0)
    assert {call.input for call in docker.calls} == {""}
