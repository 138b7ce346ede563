"""The chart's values, where the goldens do not show them, and the spec's `values` merged last."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.errors import SpecError
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from hvdchart.values.check import checked_values
from hvdchart.values.render import dump

HEAD = "apiVersion: hvdchart/v1\nname: run\ntrain: {command: [a]}\n"
NODE = "nodes: [{name: a, count: 1, coresPerSocket: 4, memory: 8Gi, nodeSelector: {k: v}}]\n"


def values(text: str) -> dict[str, Any]:
    return checked_values(make_plan(parse_spec((HEAD + text).encode(), "a.yaml")))


def test_spec_values_are_merged_last() -> None:
    found = values(
        NODE + "values: {worker: {number: 7, nodeSelector: {x: y}}, master: {args: [b]}}\n"
    )
    assert found["worker"]["number"] == 7
    assert found["worker"]["nodeSelector"] == {"k": "v", "x": "y"}
    assert found["master"]["args"] == ["b"]


def test_null_deletes_a_rendered_value() -> None:
    found = values(
        NODE + "values: {worker: {nodeSelector: {k: null}, resources: {limits: null}}}\n"
    )
    assert found["worker"]["nodeSelector"] == {}
    assert "limits" not in found["worker"]["resources"]


def test_null_stays_where_it_deletes_a_default_of_the_chart() -> None:
    found = values(
        NODE + "values: {podSecurityContext: {runAsUser: null, seccompProfile: {type: null}}}"
    )
    assert found["podSecurityContext"] == {"runAsUser": None, "seccompProfile": {"type": None}}


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("{worker: {nmber: 2}}", "5:19", "did you mean 'number'?"),
        ("{wrker: {}}", "5:10", "no key 'wrker' here (did you mean 'worker'?)"),
        ("{worker: {number: 0}}", "5:27", "values.worker.number"),
        ("{worker: {number: x}}", "5:27", "integer"),
        ("{worker: null}", "5:18", "null deletes a value that the chart needs"),
        ("{worker: {env: null}}", "5:24", "give it array instead"),
        ("{worker: {env: [{name: 1}]}}", "5:32", "string"),
        ('{"a\\nb\\u200b": 1}', "5:10", r"values.a\nb\u200b: the chart has no key"),
    ],
)
def test_refused_value_is_reported_at_its_place_in_the_spec(
    text: str, place: str, says: str
) -> None:
    with pytest.raises(SpecError) as caught:
        values(NODE + f"values: {text}\n")
    assert caught.value.place == f"a.yaml:{place}", str(caught.value)
    assert says in str(caught.value)
    assert str(caught.value).isprintable()


def test_volume_of_some_groups_is_mounted_there_only() -> None:
    found = values(
        "nodes: [{name: a, count: 1, coresPerSocket: 1}, {name: b, count: 1, gpus: 1}]\n"
        "volumes: {data: {pvc: d, groups: [b]}, output: {pvc: o, groups: [b, a]}}\n"
    )
    assert [volume["name"] for volume in found["volumes"]] == ["output"]
    first, second = found["workerGroups"]
    assert "volumes" not in first
    assert second["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "d"}}]
    assert {"name": "DATA_PATH", "value": "/data"} in second["env"]
    assert found["worker"]["env"] == [{"name": "OUTPUT_PATH", "value": "/output"}]


@pytest.mark.parametrize(
    "word", ["no", "on", "y", "1", "010", "1e3", "~", "", "a: b", "# x", "-", "é"]
)
def test_text_that_helm_would_read_as_another_type_is_quoted(word: str) -> None:
    assert dump({"a": word}, {}).startswith('a: "')


def test_changed_values_leave_the_spec_unchanged() -> None:
    spec = parse_spec((HEAD + NODE + "values: {worker: {affinity: {x: {}}}}\n").encode())
    checked_values(make_plan(spec))["worker"]["affinity"]["x"]["y"] = 1
    assert spec.values == {"worker": {"affinity": {"x": {}}}}
