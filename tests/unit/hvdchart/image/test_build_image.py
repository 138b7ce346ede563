"""Building images and bringing them to a cluster: programs that record their calls."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from hvdchart.image import build_image as building
from hvdchart.image.build_image import Source, context_files
from hvdchart.image.deliver import push_image
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command


def commands(stub: StubProgram) -> list[list[str]]:
    """The calls, but for those that ask whether the engine works."""
    return [call.arguments for call in stub.calls if call.arguments != ["info"]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a Dockerfile, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (project / "Dockerfile").write_text("FROM a\n")
    (project / "train.py").write_text("pass")
    (project / "data" / "big").write_text("1")
    return project


NAME = "host:5000/team/r"


def tag(folder: Path) -> str:
    return Source(folder, "r").reference()


@pytest.mark.slow
def test_an_image_is_built_and_pushed_with_the_tag_of_its_content(
    hvdchart: Command, folder: Path, docker: StubProgram
) -> None:
    done = hvdchart("build", folder, "--image", NAME, "--push")
    assert done.code == 0, done.errors
    assert "hvdchart: STEP 1/1: FROM a\n" in done.errors
    reference = Source(folder, NAME).reference()
    assert done.output == f"{reference}\n"
    assert commands(docker) == [
        ["inspect", "--type=image", reference],
        ["build", "--file", str(folder / "Dockerfile"), "--tag", reference, str(folder)],
        ["push", reference],
    ]


def test_an_image_is_built_once_for_each_content(
    hvdchart: Command, folder: Path, docker: StubProgram
) -> None:
    docker.answer("inspect")
    done = hvdchart("build", folder, "--image", NAME)
    reference = Source(folder, NAME).reference()
    assert done.output == f"{reference}\n"
    assert reference in done.errors
    assert "build" not in docker.commands()


def test_the_tag_stays_when_a_file_gets_another_time(folder: Path) -> None:
    before = tag(folder)
    (folder / "train.py").touch()
    assert tag(folder) == before


def test_the_tag_is_that_of_the_content_and_the_modes_of_the_files(folder: Path) -> None:
    tags = {tag(folder)}
    (folder / "train.py").write_text("1")
    tags.add(tag(folder))
    for mode in (0o755, 0o645):
        (folder / "train.py").chmod(mode)
        tags.add(tag(folder))
    assert len(tags) == 4


def test_the_tag_takes_little_memory_for_a_large_file(folder: Path) -> None:
    with (folder / "data.bin").open("wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    try:
        tag(folder)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_link_to_a_folder_counts_as_the_link_itself(folder: Path) -> None:
    """As for the builder; the link may be a loop."""
    (folder / "latest").symlink_to(".")
    assert context_files(folder) == ["Dockerfile", "data/big", "latest", "train.py"]
    before = tag(folder)
    (folder / "latest").unlink()
    (folder / "latest").symlink_to("data")
    assert tag(folder) != before


def test_the_tag_stays_when_an_ignored_file_changes(folder: Path) -> None:
    (folder / ".dockerignore").write_text("data\n.dockerignore\n")
    before = tag(folder)
    (folder / "data" / "big").write_text("2")
    assert tag(folder) == before


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ("", ["Dockerfile", "data/big", "data/x.pyc", "x.pyc"]),
        ("*.pyc\n", ["Dockerfile", "data/big", "data/x.pyc"]),
        ("**/*.pyc\n", ["Dockerfile", "data/big"]),
        ("#x.pyc\n\n./data\n", ["#x.pyc", "Dockerfile", "x.pyc"]),
        ("*\n!data\n", ["Dockerfile", "data/big", "data/x.pyc"]),
        ("Dockerfile\n", ["Dockerfile", "data/big", "data/x.pyc", "x.pyc"]),
    ],
)
def test_patterns_begin_at_the_folder_as_dockers_do(
    folder: Path, patterns: str, left: list[str]
) -> None:
    (folder / "train.py").unlink()
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").touch()
    for name in ("x.pyc", "data/x.pyc", *(["#x.pyc"] if patterns.startswith("#") else [])):
        (folder / name).touch()
    (folder / ".dockerignore").write_text(patterns)
    assert [name for name in context_files(folder) if name != ".dockerignore"] == left


@pytest.mark.parametrize(
    ("program", "command", "options", "says"),
    [
        ("docker", "build", [], " 3): line 20; line 21; "),
        ("docker", "push", ["--push"], "`docker login host.example`"),
        ("loader", "now", ["--load-with", "loader now"], "`loader now` "),
        ("", "", ["--load-with", "nowhere load"], "'nowhere'"),
    ],
)
def test_failure_shows_the_last_lines_and_a_remedy(
    hvdchart: Command,
    folder: Path,
    docker: StubProgram,
    programs: Path,
    program: str,
    command: str,
    options: list[str],
    says: str,
) -> None:
    lines = "".join(f"line {number}\n" for number in range(30))
    if program:
        failing = docker if program == "docker" else StubProgram(programs, program)
        failing.answer(command, errors=lines, code=3)
    done = hvdchart("build", folder, "--image", "host.example/r", *options)
    assert (done.code, done.output) == (9, "")
    assert says in done.errors


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("podman", ["--runtime=runc", "build"]),
        ("buildah", ["bud", "--isolation", "oci", "--runtime=runc"]),
    ],
)
def test_each_engine_builds_with_its_own_command(
    folder: Path, programs: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: list[str]
) -> None:
    monkeypatch.setattr(building, "runtime_options", lambda: ["--runtime=runc"])
    stub = StubProgram(programs, name)
    stub.answer("inspect", code=1)
    building.build_image(Source(folder, "r"), name, lambda line: None)
    assert commands(stub)[-1][: len(words)] == words


@pytest.mark.parametrize("name", ["podman", "buildah"])
def test_each_engine_pushes_to_the_registry_of_the_name(programs: Path, name: str) -> None:
    stub = StubProgram(programs, name)
    push_image("team/r:1", name, lambda line: None)
    assert commands(stub)[-1] == ["push", "team/r:1", "docker://team/r:1"]
