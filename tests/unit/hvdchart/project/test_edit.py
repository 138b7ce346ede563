"""Changing single keys of a spec's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdchart.errors import SpecError
from hvdchart.project.edit import get, items, set_values, unset_values

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


def changed(spec: Path) -> list[tuple[str, str]]:
    """The lines that differ, before and after; the file has as many lines as before."""
    return [
        pair
        for pair in zip(TEXT.splitlines(), spec.read_text().splitlines(), strict=True)
        if pair[0] != pair[1]
    ]


def test_a_value_is_changed_and_all_else_stays(spec: Path) -> None:
    set_values(spec, ["nodes.0.count=8", 'image.tag="2.0"'])
    assert changed(spec) == [
        (TEXT.splitlines()[6], TEXT.splitlines()[6].replace("count: 2", "count: 8")),
        ("  tag: '1.0'", "  tag: '2.0'"),
    ]
    assert get(spec, "image.tag") == "2.0", "text stays text"


def test_a_new_key_is_added_at_the_end_of_its_map(spec: Path) -> None:
    set_values(spec, ["volumes.output.pvc=results", r"values.podLabels.c\.d=y"])
    assert spec.read_text() == (
        TEXT.replace("    a.b: x\n", "    a.b: x\n    c.d: y\n")
        + "volumes:\n  output:\n    pvc: results\n"
    )


def test_all_values_are_listed_with_paths_that_can_be_set(spec: Path) -> None:
    listed = dict(items(spec))
    assert listed["nodes.0.memory"] == "384Gi"
    assert listed["train.command.1"] == "train.py"
    assert list(listed)[:2] == ["apiVersion", "name"]
    for path, value in listed.items():
        assert get(spec, path) == value


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("nodes.0.count=many", "nodes"),
        ("wroker=1", "wroker"),
        ("nodes.1.count=1", "'1' is not an item; expected a number from 0 to 0"),
        ("name.first=a", "'first' is below 'resnet'"),
        ("nodes.0.count", "expected path=value"),
        ("=1", "a path such as nodes.0.count"),
        ("name=[", "the value of name"),
        ("train.command=[]", "command"),
    ],
)
def test_a_change_that_would_make_the_spec_wrong_is_refused(
    spec: Path, setting: str, problem: str
) -> None:
    with pytest.raises(SpecError, match=problem.replace("'", "'")):
        set_values(spec, [setting])
    assert spec.read_text() == TEXT


@pytest.mark.parametrize(
    ("path", "expected", "problem"),
    [
        ("nodes.0.counts", "one of name, count, coresPerSocket, memory", "there is no 'counts'"),
        ("volumes.data", "one of apiVersion, name, nodes", "there is no 'volumes'"),
        ("nodes.1", "a number from 0 to 0", "'1' is not an item"),
        ("values.podLabels.a", "one of a.b", "there is no 'a'"),
        ("name.first", "no further step", "'first' is below 'resnet'"),
    ],
)
def test_what_is_not_there_can_be_neither_read_nor_removed(
    spec: Path, path: str, expected: str, problem: str
) -> None:
    with pytest.raises(SpecError, match=f"there is no .*; expected {expected}"):
        get(spec, path)
    with pytest.raises(SpecError, match=problem):
        unset_values(spec, [path])
    assert spec.read_text() == TEXT


def test_a_list_without_indentation_stays_so(tmp_path: Path) -> None:
    file = tmp_path / "flat.yaml"
    flat = (
        "apiVersion: hvdchart/v1\nname: r\nnodes:\n- name: a\n  count: 1\n  gpus: 1\n"
        "train:\n  command:\n  - a\nvalues:\n  a: [1, 2]\n  b: []\n"
    )
    file.write_text(flat)
    set_values(file, ["nodes.0.count=3"])
    assert file.read_text() == flat.replace("count: 1", "count: 3")
