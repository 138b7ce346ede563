"""Building images and bringing them to a cluster: programs that record their calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdchart.image import build as building
from hvdchart.image.build import Source, context_files
from hvdchart.image.deliver import push, save
from tests.fakes.fixtures import Command
from tests.fakes.program import StubProgram

SPEC = """\
apiVersion: hvdchart/v1
name: r   # mine
nodes: [{name: a, count: 1, gpus: 1}]
image: {repository: old, tag: old}
train: {command: [a]}
"""


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


@pytest.mark.slow
def test_an_image_is_built_once_for_each_content_pushed_and_named_in_the_spec(
    hvdchart: Command, folder: Path, docker: StubProgram
) -> None:
    spec = folder.parent / "run.spec.yaml"
    spec.write_text(SPEC)
    build = ["build", folder, "--image", "host:5000/team/r"]
    done = hvdchart(*build, "--push", "--spec", spec)
    assert done.code == 0, done.errors
    reference = done.output.strip()
    assert reference == Source(folder, "host:5000/team/r").reference()
    assert commands(docker) == [
        ["inspect", "--type=image", reference],
        ["build", "--file", str(folder / "Dockerfile"), "--tag", reference, str(folder)],
        ["push", reference],
    ]
    assert spec.read_text().splitlines()[1] == "name: r   # mine"
    tag = reference.rpartition(":")[2]
    assert f"repository: host:5000/team/r, tag: {tag}" in spec.read_text().replace('"', "")
    assert "hvdchart: STEP 1/1: FROM a\n" in done.errors
    docker.answer("inspect")
    again = hvdchart(*build)
    assert (again.output, "is built already" in again.errors) == (done.output, True)


def test_the_tag_is_that_of_the_content(folder: Path) -> None:
    def tag() -> str:
        return Source(folder, "r").reference()

    first = tag()
    assert len(first) == len("r:") + 12
    (folder / "train.py").touch()
    assert tag() == first, "times do not count"
    (folder / "train.py").write_text("1")
    changed = tag()
    (folder / "train.py").chmod(0o755)
    runnable = tag()
    (folder / "train.py").chmod(0o645)
    assert len({first, changed, runnable, tag()}) == 4
    (folder / ".dockerignore").write_text("data\n.dockerignore\n")
    ignored = tag()
    (folder / "data" / "big").write_text("2")
    assert tag() == ignored


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
        ("docker", "build", [], "exit code 3): line 20; line 21; "),
        ("docker", "push", ["--push"], "line 29; log in with `docker login host.example`"),
        ("docker", "save", ["--save", "image.tar"], "cannot save host.example/r:"),
        ("loader", "now", ["--load-with", "loader now"], "`loader now` ended with exit code 3: "),
        ("", "", ["--load-with", "nowhere load"], "no program 'nowhere' is on PATH"),
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


def test_each_engine_has_its_own_command(
    folder: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "runtime_options", lambda: ["--runtime=runc"])
    expected = {
        "podman": ["--runtime=runc", "build"],
        "buildah": ["bud", "--isolation", "oci", "--runtime=runc"],
    }
    for name, words in expected.items():
        stub = StubProgram(programs, name)
        stub.answer("inspect", code=1)
        building.build(Source(folder, "r"), name, lambda line: None)
        assert commands(stub)[-1][: len(words)] == words
        # Under the name that pods ask for: their own names begin with localhost/.
        save("r:1", name, folder / "a.tar")
        assert commands(stub)[-1] == ["push", "r:1", f"docker-archive:{folder / 'a.tar'}:r:1"]
        push("team/r:1", name, lambda line: None)
        assert commands(stub)[-1] == ["push", "team/r:1", "docker://team/r:1"]
