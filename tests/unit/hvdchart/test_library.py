"""The library's own names: specs that are built or changed in Python, and settings."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import hvdchart
from devtools.common.repository import EXAMPLE_VALUES
from hvdchart import Image, NodeGroup, Reserved, Spec, SpecError, Train, Tuning, Volume
from hvdchart.spec.fields import ObjectOf
from hvdchart.spec.load import checked_spec, load_spec, parse_spec
from hvdchart.spec.yaml_tree import SourcePlace, from_plain
from tests.support.strategies import as_json, specs

SPECS = sorted(EXAMPLE_VALUES.glob("*.spec.yaml"))


def built(**changes: Any) -> Spec:
    """A spec made in Python, with the lists and maps that a person would write."""
    nodes: Any = [NodeGroup(name="a", count=2, sockets=2, cores_per_socket=4, memory=2**36)]
    train = Train(command=("python", "train.py"), env={"A": "1"})
    settings = {"nodes": nodes, "train": train, "image": Image("a/b", tag="1"), **changes}
    return Spec(api_version="hvdchart/v1", name="run", **settings)


def wrong(kind: Any, *values: object, **more: object) -> object:
    """An object that mypy would not let a program make."""
    return kind(*values, **more)


def test_a_spec_built_in_python_is_planned_like_the_same_yaml() -> None:
    volume = Volume(host_path="/mnt", mount_path="/data")
    reserved = Reserved(cpu=1500, memory=2**30)
    group = NodeGroup("a", 2, sockets=2, cores_per_socket=4, memory=2**36, reserved=reserved)
    spec = built(nodes=[group], volumes={"data": volume}, tuning=Tuning(cpu=500))
    text = (
        "apiVersion: hvdchart/v1\nname: run\nimage: {repository: a/b, tag: '1'}\n"
        "nodes: [{name: a, count: 2, sockets: 2, coresPerSocket: 4, memory: 64Gi, "
        "reserved: {cpu: 1500m, memory: 1Gi}}]\n"
        "train: {command: [python, train.py], env: {A: 1}}\ntuning: {cpu: 500m}\n"
        "volumes: {data: {hostPath: /mnt, mountPath: /data}}\n"
    )
    plans = [hvdchart.make_plan(source) for source in (spec, parse_spec(text))]
    assert plans[0] == plans[1]
    assert hvdchart.render_values(plans[0]) == hvdchart.render_values(plans[1])


@pytest.mark.parametrize(
    ("changes", "path", "says"),
    [
        ({"nodes": [NodeGroup("a", 0, cores_per_socket=1)]}, "nodes[0].count", "got 0"),
        ({"train": wrong(Train, command="a b")}, "train.command", "'a b'"),
        ({"train": Train(("a\0",))}, "train.command[0]", "control character"),
        ({"tuning": wrong(Tuning, cpu=0.5)}, "tuning.cpu", "got '0.5m'"),
        ({"volumes": {"tmp": Volume(pvc="a", mount_path="/x")}}, "volumes.tmp", "'tmp'"),
        ({"values": {"worker": {"env": [b"a"]}}}, "values.worker.env[0]", "got b'a'"),
        ({"values": {"a": {"b": date(2026, 1, 2)}}}, "values.a.b", "got datetime.date(2026, 1, 2)"),
        ({"values": {"a": float("nan")}}, "values.a", "got nan"),
    ],
)
def test_a_wrong_spec_built_in_python_is_refused(
    changes: dict[str, Any], path: str, says: str
) -> None:
    with pytest.raises(SpecError) as caught:
        hvdchart.make_plan(built(**changes))
    assert (caught.value.place, caught.value.path) == ("the spec", path)
    assert says in str(caught.value)


def rewritten(spec: Spec) -> Spec:
    reader = ObjectOf(Spec)
    return reader.read(from_plain(reader.write(spec), SourcePlace("x")), "")


@pytest.mark.fuzz
@given(specs())
def test_writing_any_spec_and_reading_it_changes_nothing(spec: dict[str, Any]) -> None:
    read = parse_spec(as_json(spec))
    assert rewritten(read) == read


def test_settings_values_and_more_files_are_merged_as_by_the_command(tmp_path: Path) -> None:
    over = tmp_path / "over.yaml"
    over.write_text("name: other\ntrain: {env: {A: b}}\n")
    values = {"code": "x = 1\f\n"}
    loaded = load_spec(SPECS[0], over, settings=["nodes.0.count=8"], values=values)
    assert (loaded.name, loaded.nodes[0].count, loaded.train.env["A"]) == ("other", 8, "b")
    # The values of a program are merged as they are.
    assert loaded.values["code"] == "x = 1\f\n"
    assert checked_spec(loaded) == loaded


def test_wrong_setting_is_refused_by_its_own_text() -> None:
    with pytest.raises(SpecError, match=r"--set nodes\.0\.count=0: nodes\[0\]\.count: got 0"):
        parse_spec(SPECS[0].read_text(), settings=["nodes.0.count=0"])


def test_names_of_the_library_are_completed_and_imported_together() -> None:
    names: dict[str, Any] = {}
    exec("from hvdchart import *", names)  # noqa: S102 - not allowed within a function
    assert {"Caller", "close", "launch", "make_plan", "__version__"} <= names.keys()
    assert set(dir(hvdchart)) == names.keys() - {"__builtins__"}
