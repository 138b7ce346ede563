"""init, templates and config: new projects, and changes of single keys of a spec."""

from __future__ import annotations

import ast
import errno
import os
from pathlib import Path

import pytest

from hvdchart.code.archive import list_files
from hvdchart.errors import FileError
from hvdchart.image.build_image import context_files
from hvdchart.plan.planner import make_plan
from hvdchart.project.templates import TEMPLATES, make_project
from hvdchart.spec.load import load_spec
from hvdchart.values.check_values import checked_values
from images.builder.catalogue import load_catalogue
from tests.unit.hvdchart.command import Command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the project `mine`, below the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine"


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_new_project_can_be_deployed_as_it_is(tmp_path: Path, name: str) -> None:
    """Its files are those that are told, and its code goes to the run."""
    folder = tmp_path / "team" / "mine"
    template = TEMPLATES[name]
    told = make_project(folder, "mine", template)
    assert {file.name for file in told} == {file.name for file in folder.iterdir()}
    spec = load_spec(folder / "run.spec.yaml")
    assert spec.name == "mine"
    assert checked_values(make_plan(spec))["master"]["args"][:2] == ["python", "train.py"]
    assert set(list_files(folder)) == {"train.py", ".hvdignore", *template.modules}
    for file in folder.glob("*.py"):
        ast.parse(file.read_text())
    # That for torchrun has nothing of this project: its steps are counted.
    script = (folder / "train.py").read_text()
    assert ("hvd_progress" in script) == ("import horovod" in script)


def test_the_images_of_templates_are_those_of_this_repository() -> None:
    ours = {f"horovod-{name}" for name in load_catalogue()}
    assert {template.image for template in TEMPLATES.values()} - {""} <= ours


ZEROS = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("team/a:1.0", ("team/a", "1.0", None)),
        ("host:5000/a", ("host:5000/a", "latest", None)),
        ("host:5000/a:2", ("host:5000/a", "2", None)),
        ("a", ("a", "latest", None)),
        (f"host:5000/a@{ZEROS}", ("host:5000/a", None, ZEROS)),
        (f"a:1@{ZEROS}", ("a", "1", ZEROS)),
    ],
)
def test_the_image_may_be_another(
    tmp_path: Path, image: str, expected: tuple[str, str | None, str | None]
) -> None:
    make_project(tmp_path / "p", "p", TEMPLATES["keras"], image)
    written = load_spec(tmp_path / "p" / "run.spec.yaml").image
    assert written is not None
    assert (written.repository, written.tag, written.digest) == expected


def test_dockerfile_takes_the_packages_and_leaves_the_code(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    make_project(folder, "p", TEMPLATES["keras"], "team/a:1", has_dockerfile=True)
    dockerfile = (folder / "Dockerfile").read_text()
    assert "FROM team/a:1\nUSER 0\nCOPY requirements.txt" in dockerfile
    assert context_files(folder) == ["Dockerfile", "requirements.txt"]
    assert set(list_files(folder)) & {".dockerignore", "requirements.txt"} == set()
    # `deploy` builds it, and chooses its tag.
    written = load_spec(folder / "run.spec.yaml").image
    assert written is not None
    assert (written.repository, written.tag) == ("p", None)


def test_a_folder_that_exists_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    with pytest.raises(FileError, match="/p: "):
        make_project(tmp_path / "p", "p", TEMPLATES["keras"])
    assert list((tmp_path / "p").iterdir()) == []


def test_a_folder_that_cannot_be_created_is_reported_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=os.strerror(errno.ENOTDIR)):
        make_project(tmp_path / "file" / "p", "p", TEMPLATES["keras"])


def test_init_writes_a_project_that_renders(
    hvdchart: Command, folder: Path, programs: Path
) -> None:
    done = hvdchart("init", "mine", "--template", "benchmark")
    assert done.code == 0
    assert len(done.output.splitlines()) == 4
    rendered = hvdchart("render", folder / "run.spec.yaml", "--code", folder)
    assert rendered.code == 0, rendered.errors
    assert "archive: " in rendered.output


def test_init_says_what_comes_next(hvdchart: Command, folder: Path, programs: Path) -> None:
    done = hvdchart("init", "mine", "--template", "benchmark")
    assert "Horovod with TensorFlow" in done.errors
    assert "`python -m images build cpu`" in done.errors
    assert "hvdchart deploy" not in done.errors, "its image is not there yet"
    named = hvdchart("init", "other", "--image", "a/b:1")
    assert named.errors.endswith("next: cd other && hvdchart deploy .\n")


def test_init_without_a_template_needs_a_public_image_alone(
    hvdchart: Command, folder: Path, programs: Path
) -> None:
    done = hvdchart("init", "mine")
    assert "python -m images" not in done.errors
    image = load_spec(folder / "run.spec.yaml").image
    assert image is not None
    assert image.repository == "pytorch/pytorch"


def test_init_of_an_unknown_template_lists_those_that_there_are(hvdchart: Command) -> None:
    unknown = hvdchart("init", "other", "--template", "torch")
    assert unknown.code == 2
    shown = " ".join(unknown.errors.replace("│", " ").split())
    assert "'torchrun'" in shown
    assert f"benchmark: {TEMPLATES['benchmark'].about}" in shown
