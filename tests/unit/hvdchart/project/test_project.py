"""init, templates and config: new projects, and changes of single keys of a spec."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.images.catalogue import load_catalogue
from hvdchart.code.archive import list_files
from hvdchart.errors import FileError, SpecError
from hvdchart.image.build import context_files
from hvdchart.plan.planner import make_plan
from hvdchart.project.edit import get, set_values, unset_values
from hvdchart.project.templates import TEMPLATES, make_project
from hvdchart.spec.load import load_spec
from hvdchart.values.check import checked_values
from tests.fakes.fixtures import Command

TEXT = """\
# The run of the team.
apiVersion: hvdchart/v1
name: resnet   # as in the registry

nodes:
  # Two of them.
  - {name: xeon, count: 2, coresPerSocket: 28, memory: "384Gi"}
image:
  repository: registry.example/team/resnet
  tag: '1.0'
train:
  command: [python, train.py]
values:
  podLabels:
    a.b: x
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    file = tmp_path / "run.spec.yaml"
    file.write_text(TEXT)
    return file


FLAT = (
    "apiVersion: hvdchart/v1\nname: r\nnodes:\n- name: a\n  count: 1\n  gpus: 1\n"
    "train:\n  command:\n  - a\nvalues:\n  a: [1, 2]\n  b: []\n"
)


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        # Text stays text, and a list keeps its indentation.
        (
            TEXT,
            lambda file: set_values(file, ["nodes.0.count=8", 'image.tag="2.0"']),
            TEXT.replace("count: 2", "count: 8").replace("1.0", "2.0"),
        ),
        (
            FLAT,
            lambda file: set_values(file, ["nodes.0.count=3"]),
            FLAT.replace("count: 1", "count: 3"),
        ),
        # A new key comes at the end of its map.
        (
            TEXT,
            lambda file: set_values(
                file, ["volumes.output.pvc=results", r"values.podLabels.c\.d=y"]
            ),
            TEXT.replace("    a.b: x\n", "    a.b: x\n    c.d: y\n")
            + "volumes:\n  output:\n    pvc: results\n",
        ),
        (
            TEXT,
            lambda file: unset_values(file, ["train.command.1", r"values.podLabels.a\.b"]),
            TEXT.replace(", train.py", "").replace("podLabels:\n    a.b: x", "podLabels: {}"),
        ),
    ],
    ids=["set", "flat", "add", "unset"],
)
def test_a_key_is_changed_and_all_else_stays(
    spec: Path, before: str, change: Callable[[Path], None], after: str
) -> None:
    spec.write_text(before)
    change(spec)
    assert spec.read_text() == after


def test_line_ends_and_anchors_stay(spec: Path) -> None:
    mark = "\ufeff"
    spec.write_bytes((mark + TEXT).replace("\n", "\r\n").encode())
    set_values(spec, ["nodes.0.count=8"])
    expected = (mark + TEXT).replace("count: 2", "count: 8").replace("\n", "\r\n")
    assert spec.read_bytes().decode() == expected
    anchored = TEXT.replace("a.b: x", "a.b: &x x\n    c: *x\n    d: &alone y")
    spec.write_text(anchored)
    for change, words in (
        (set_values, r"values.podLabels.a\.b=z"),
        (unset_values, r"values.podLabels.a\.b"),
    ):
        with pytest.raises(SpecError, match=r"other keys use its value \(\*x\)"):
            change(spec, [words])
    set_values(spec, ["nodes.0.count=8", "values.podLabels.c=z"])
    assert spec.read_text() == anchored.replace("count: 2", "count: 8").replace("*x", "z")


@pytest.mark.parametrize(
    ("change", "words", "problem"),
    [
        (set_values, "nodes.0.count=many", "nodes"),
        (set_values, "nodes.0.count", "expected path=value"),
        (set_values, "=1", "a path such as nodes.0.count"),
        (unset_values, "name", "name"),
        (unset_values, "nodes.0", "nodes: got an empty list"),
        (unset_values, "volumes.data", "there is no 'volumes'"),
        (get, "nodes.0.counts", "no 'counts'; expected one of name, count, coresPerSocket, mem"),
        (get, "values.podLabels.a", "there is no 'a'; expected one of a.b"),
    ],
)
def test_what_is_missing_or_would_make_the_spec_wrong_is_refused(
    spec: Path, change: Callable[[Path, Any], object], words: str, problem: str
) -> None:
    with pytest.raises(SpecError, match=problem):
        change(spec, words if change is get else [words])
    assert spec.read_text() == TEXT


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_project_can_be_deployed_as_it_is(template: str, tmp_path: Path) -> None:
    chosen = TEMPLATES[template]
    folder = tmp_path / "team" / "mine"
    files = make_project(folder, "mine", chosen)
    assert {file.name for file in files} == {file.name for file in folder.iterdir()}
    spec = load_spec(folder / "run.spec.yaml")
    values = checked_values(make_plan(spec))
    assert spec.name == "mine"
    assert "\nname: mine\n" in (folder / "run.spec.yaml").read_text(), "quoted only where need be"
    assert values["master"]["args"][:2] == ["python", "train.py"]
    handed = {file.name for file in list_files(folder)}
    assert handed == {"train.py", ".hvdignore", *chosen.modules}
    for file in folder.glob("*.py"):
        ast.parse(file.read_text())
    assert "hvd_progress" in (folder / "train.py").read_text(), "it tells its progress"
    readme = (folder / "README.md").read_text()
    assert "hvdchart deploy run.spec.yaml --code ." in readme
    assert "Packages of your own go into a `requirements.txt`." in readme


def test_the_images_of_templates_are_those_of_this_repository() -> None:
    ours = {f"horovod-{name}" for name in load_catalogue()}
    assert {template.image for template in TEMPLATES.values()} <= ours


def test_the_image_may_be_another(tmp_path: Path) -> None:
    digest = f"sha256:{'0' * 64}"
    for number, (image, *expected) in enumerate(
        [
            ("team/a:1.0", "team/a", "1.0", None),
            ("host:5000/a", "host:5000/a", "latest", None),
            ("host:5000/a:2", "host:5000/a", "2", None),
            ("a", "a", "latest", None),
            (f"host:5000/a@{digest}", "host:5000/a", None, digest),
            (f"a:1@{digest}", "a", "1", digest),
        ]
    ):
        make_project(tmp_path / str(number), "p", TEMPLATES["keras"], image)
        written = load_spec(tmp_path / str(number) / "run.spec.yaml").image
        assert written is not None
        assert [written.repository, written.tag, written.digest] == expected


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


def test_init_writes_a_project_that_renders(
    hvdchart: Command, tmp_path: Path, programs: Path
) -> None:
    folder = tmp_path / "mine"
    done = hvdchart("init", "mine", "--template", "benchmark", "--folder", folder)
    assert (done.code, len(done.output.splitlines())) == (0, 4)
    assert "image is in no public registry" in done.errors
    assert done.errors.endswith(f"next: cd {folder} && hvdchart deploy .\n")
    rendered = hvdchart("render", folder / "run.spec.yaml", "--code", folder)
    assert rendered.code == 0, rendered.errors
    assert "archive: " in rendered.output
    unknown = hvdchart("init", "other", "--template", "none")
    assert unknown.code == 2
    shown = " ".join(unknown.errors.replace("│", " ").split())
    assert f"is none of these: benchmark {TEMPLATES['benchmark'].about}; keras " in shown


def test_config_reads_and_changes_a_spec(hvdchart: Command, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    hvdchart("init", "mine", "--folder", folder)
    spec = folder / "run.spec.yaml"
    before = spec.read_text()
    assert hvdchart("config", spec, "get", "nodes.0.count", "name").output == "2\nmine\n"
    assert hvdchart("config", spec, "set", "nodes.0.count=4").code == 0
    assert spec.read_text() == before.replace("count: 2 ", "count: 4 ")
    assert hvdchart("config", spec, "unset", "nodes.0.shared").code == 0
    assert "shared" not in spec.read_text()
    wrong = hvdchart("config", spec, "set", "nodes.0.count=-1")
    assert wrong.code == 3
    assert "nodes[0].count" in wrong.errors
