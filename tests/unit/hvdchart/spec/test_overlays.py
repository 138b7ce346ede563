"""Several specs and --set: merged as Helm merges, with each value at its own place."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.errors import SpecError
from hvdchart.spec.load import read_spec
from hvdchart.spec.overlays import apply_settings, merge_specs
from hvdchart.spec.yaml_tree import Node, parse_document

BASE = b"""\
apiVersion: hvdchart/v1
name: run
nodes: [{name: a, count: 1, coresPerSocket: 4}]
train: {command: [a], env: {A: x, B: y}}
values: {worker: {nodeSelector: {a: b}}}
image: {repository: a, pullSecrets: []}
"""


def merged(*over: bytes) -> Any:
    others = [parse_document(text, f"over{index}") for index, text in enumerate(over)]
    return merge_specs([parse_document(BASE, "base"), *others])


def test_maps_are_merged_and_null_deletes_a_key() -> None:
    plain = merged(b"train: {env: {B: null, C: z}}").plain
    assert plain["train"] == {"command": ["a"], "env": {"A": "x", "C": "z"}}


def test_list_replaces_a_list() -> None:
    plain = merged(b"nodes: [{name: b, count: 2, gpus: 1}]\n").plain
    assert [node["name"] for node in plain["nodes"]] == ["b"]


def test_last_of_several_files_wins() -> None:
    assert merged(b"name: one", b"name: two").plain["name"] == "two"


def test_null_of_a_setting_deletes_a_key() -> None:
    assert "env" not in apply_settings(merged(), ["train.env=null"]).plain["train"]


def test_null_below_values_is_left_to_helm() -> None:
    tree = merged(b"values: {worker: {nodeSelector: null}, shm: null}")
    assert tree.plain["values"] == {"worker": {"nodeSelector": None}, "shm": None}
    tree = apply_settings(tree, ["values.worker.nodeSelector=null"])
    assert tree.plain["values"]["worker"] == {"nodeSelector": None}


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("nodes.0.count=8", ["nodes", 0, "count"], 8),
        ("train.env.example\\.com/a=b", ["train", "env", "example.com/a"], "b"),
        ("train.command=[x, y=z]", ["train", "command"], ["x", "y=z"]),
    ],
)
def test_setting_replaces_one_value(setting: str, path: list[Any], value: Any) -> None:
    actual = apply_settings(merged(), [setting]).plain
    for step in path:
        actual = actual[step]
    assert actual == value


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("nodes.x=8", "'x'"),
        ("image.pullSecrets.0=a", "image.pullSecrets"),
        ("nodes", "path=value"),
        ("name.x=3", "'run'"),
        ("name=[", "broken YAML"),
    ],
)
def test_wrong_setting_is_refused(setting: str, value: str) -> None:
    with pytest.raises(SpecError) as caught:
        apply_settings(merged(), [setting])
    assert caught.value.place.startswith("--set")
    assert value in f"{caught.value.path} {caught.value.problem} {caught.value.expected}"


LIST = "nodes=[{name: a, count: x, gpus: 1}]"


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        (merged(b"\nname: Wrong"), "over0:2:7"),
        (apply_settings(merged(), ["nodes.0.count=x"]), "--set nodes.0.count=x"),
        (apply_settings(merged(), [LIST]), f"--set {LIST}"),
    ],
)
def test_wrong_value_names_its_own_file_or_setting(tree: Node, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_spec(tree)
    assert caught.value.place == place
