"""Building images: a builder that records its calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hvdchart.image import build as building
from hvdchart.image.build import Source, context_files, read_step
from hvdchart.image.deliver import push, save
from tests.fakes.fixtures import Command
from tests.fakes.program import StubProgram


def commands(stub: StubProgram) -> list[list[str]]:
    """The calls, but for those that ask whether the engine works."""
    return [call.arguments for call in stub.calls if call.arguments != ["info"]]


@pytest.mark.slow
def test_an_image_is_built_once_for_each_content(
    hvdchart: Command, folder: Path, docker: StubProgram
) -> None:
    done = hvdchart("build", folder, "--image", "host:5000/team/r")
    assert done.code == 0, done.errors
    reference = done.output.strip()
    assert reference == Source(folder, "host:5000/team/r").reference()
    assert commands(docker) == [
        ["inspect", "--type=image", reference],
        ["build", "--file", str(folder / "Dockerfile"), "--tag", reference, str(folder)],
    ]
    assert "built host:5000/team/r:" in done.errors
    assert re.search(r"hvdchart: step 1/1: FROM a \(after \d+ s\)\n", done.errors)
    assert done.errors.count(" (after ") == 1
    assert "STEP" not in done.errors
    docker.answer("inspect")
    again = hvdchart("build", folder, "--image", "host:5000/team/r")
    assert again.output == done.output
    assert "is built already" in again.errors
    docker.answer("inspect", code=1)
    third = hvdchart("build", folder, "--image", "host:5000/team/r", "-v")
    assert "STEP 1/1: FROM a\n" in third.errors


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


def test_a_build_that_fails_shows_its_last_lines(
    hvdchart: Command, folder: Path, docker: StubProgram
) -> None:
    docker.answer("build", "".join(f"line {n}\n" for n in range(30)), "no such package\n", 1)
    done = hvdchart("build", folder, "--image", "r", "--push")
    assert done.code == 9
    assert done.output == ""
    assert f"docker cannot build {folder} (exit code 1): " in done.errors
    assert "line 29" in done.errors
    assert "line 5;" not in done.errors
    assert "push" not in [call[0] for call in commands(docker)]


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
        push("team/r:1", name)
        assert commands(stub)[-1] == ["push", "team/r:1", "docker://team/r:1"]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("STEP 2/5: RUN pip  install a\n", "step 2/5: RUN pip install a"),
        ("[1/2] STEP 3/4: COPY . .", "step 3/4: COPY . ."),
        ("Step 2/5 : RUN make", "step 2/5: RUN make"),
        ("#7 [2/5] RUN make", "step 2/5: RUN make"),
        ("#12 [stage-1 10/12] RUN make", "step 10/12: RUN make"),
        ("#7 0.512 [2/5] of the tests", None),
        ("#5 [internal] load metadata", None),
        ("a step 2/5: of training", None),
        (f"STEP 2/5: {'x' * 61}", f"step 2/5: {'x' * 60}"),
    ],
)
def test_steps_of_each_builder_are_read(line: str, step: str | None) -> None:
    assert read_step(line) == step


def test_a_watch_builds_again_after_a_failure_until_it_is_interrupted(
    hvdchart: Command, folder: Path, docker: StubProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker.answer("build", errors="boom", code=1)

    def changes(watched: Path) -> object:
        docker.answer("build")
        (watched / "train.py").write_text("mended")
        yield None
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "changes", changes)
    done = hvdchart("build", folder, "--image", "r", "--watch")
    assert done.code == 130
    assert "boom; waiting for the next change" in done.errors
    assert done.output == f"{Source(folder, 'r').reference()}\n"


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
