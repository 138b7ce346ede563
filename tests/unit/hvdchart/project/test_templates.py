"""New projects from templates."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from devtools.images.catalogue import load_catalogue
from hvdchart.code.archive import list_files
from hvdchart.errors import FileError
from hvdchart.image.build import context_files
from hvdchart.plan.planner import make_plan
from hvdchart.project.templates import TEMPLATES, make_project, script_spec
from hvdchart.spec.load import load_spec
from hvdchart.values.check import checked_values

ROOT = Path(__file__).parents[4]
DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_a_new_project_can_be_deployed_as_it_is(template: object, tmp_path: Path) -> None:
    chosen = next(each for each in TEMPLATES.values() if each is template)
    folder = tmp_path / "team" / "mine"
    files = make_project(folder, "mine", chosen)
    assert {file.name for file in files} == {file.name for file in folder.iterdir()}
    spec = load_spec(folder / "run.spec.yaml")
    values = checked_values(make_plan(spec))
    assert spec.name == "mine"
    assert "\nname: mine\n" in (folder / "run.spec.yaml").read_text(), "quoted only where need be"
    assert values["master"]["args"][:2] == ["python", "train.py"]
    handed = {file.name for file in list_files(folder)}
    assert handed == {"train.py", "hvd_progress.py", ".hvdignore", *chosen.modules}
    for file in folder.glob("*.py"):
        ast.parse(file.read_text())
    assert "hvd_progress" in (folder / "train.py").read_text(), "it tells its progress"
    readme = (folder / "README.md").read_text()
    assert "hvdchart deploy run.spec.yaml --code ." in readme
    assert "Packages of your own go into a `requirements.txt`." in readme


def test_the_images_of_templates_are_those_of_this_repository() -> None:
    ours = {f"horovod-{name}" for name in load_catalogue()}
    assert {template.image for template in TEMPLATES.values()} <= ours


@pytest.mark.parametrize(
    ("image", "repository", "tag"),
    [
        ("team/a:1.0", "team/a", "1.0"),
        ("host:5000/a", "host:5000/a", "latest"),
        ("host:5000/a:2", "host:5000/a", "2"),
        ("a", "a", "latest"),
        (f"host:5000/a@{DIGEST}", "host:5000/a", None),
        (f"a:1@{DIGEST}", "a", "1"),
    ],
)
def test_the_image_may_be_another(
    tmp_path: Path, image: str, repository: str, tag: str | None
) -> None:
    make_project(tmp_path / "p", "p", TEMPLATES["keras"], image)
    written = load_spec(tmp_path / "p" / "run.spec.yaml").image
    assert written is not None
    assert (written.repository, written.tag) == (repository, tag)
    assert written.digest == (DIGEST if "@" in image else None)


def test_a_dockerfile_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    make_project(tmp_path / "p", "p", TEMPLATES["keras"], "team/a:1", has_dockerfile=True)
    dockerfile = (tmp_path / "p" / "Dockerfile").read_text()
    assert "FROM team/a:1\nUSER 0\nCOPY requirements.txt" in dockerfile
    assert context_files(tmp_path / "p") == ["Dockerfile", "requirements.txt"], "no code"
    readme = (tmp_path / "p" / "README.md").read_text()
    assert "Packages of your own go into `requirements.txt` and `Dockerfile`." in readme
    handed = {file.name for file in list_files(tmp_path / "p")}
    assert handed & {".dockerignore", "requirements.txt"} == set(), "the image has the packages"
    # `deploy` builds it: it has no tag.
    written = load_spec(tmp_path / "p" / "run.spec.yaml").image
    assert written is not None
    assert (written.repository, written.tag) == ("p", None)


def test_a_folder_that_exists_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    with pytest.raises(FileError, match="p: exists already; choose another name"):
        make_project(tmp_path / "p", "p", TEMPLATES["keras"])
    assert list((tmp_path / "p").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot create it: Not a directory"):
        make_project(tmp_path / "file" / "p", "p", TEMPLATES["keras"])


def test_a_command_without_a_spec_runs_on_two_workers_without_gpus() -> None:
    plain = script_spec(["python", "a b.py"], "mine")
    assert (plain.name, plain.train.command) == ("mine", ("python", "a b.py"))
    assert [(group.count, group.gpus) for group in plain.nodes] == [(2, 0)]
    (group,) = script_spec(["a"], "mine", workers=3, gpus=4).nodes
    assert (group.count, group.gpus) == (3, 4)
