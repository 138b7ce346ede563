"""The chart's values, where the goldens do not show them, and the spec's `values` merged last."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.errors import SpecError
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from hvdchart.values.check import checked_values
from hvdchart.values.merge import merge_values, null_paths, omit_needless_nulls
from hvdchart.values.render import dump
from hvdchart.values.schema import schema_at

HEAD = "apiVersion: hvdchart/v1\nname: run\ntrain: {command: [a]}\n"
NODE = "nodes: [{name: a, count: 1, coresPerSocket: 4, memory: 8Gi, nodeSelector: {k: v}}]\n"


def values(text: str) -> dict[str, Any]:
    return checked_values(make_plan(parse_spec((HEAD + text).encode(), "a.yaml")))


def test_spec_values_are_merged_last() -> None:
    rendered = values(
        NODE + "values: {worker: {number: 7, nodeSelector: {x: y}}, master: {args: [b]}}\n"
    )
    assert rendered["worker"]["number"] == 7
    assert rendered["worker"]["nodeSelector"] == {"k": "v", "x": "y"}
    assert rendered["master"]["args"] == ["b"]


def test_null_deletes_a_rendered_value() -> None:
    rendered = values(
        NODE + "values: {worker: {nodeSelector: {k: null}, resources: {limits: null}}}\n"
    )
    assert rendered["worker"]["nodeSelector"] == {}
    assert "limits" not in rendered["worker"]["resources"]


def test_null_stays_where_it_deletes_a_default_of_the_chart() -> None:
    rendered = values(
        NODE + "values: {podSecurityContext: {runAsUser: null, seccompProfile: {type: null}}}"
    )
    assert rendered["podSecurityContext"] == {"runAsUser": None, "seccompProfile": {"type": None}}


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("{worker: {nmber: 2}}", "5:19", "did you mean 'number'?"),
        ("{wrker: {}}", "5:10", "no key 'wrker' here (did you mean 'worker'?)"),
        ("{worker: {number: 0}}", "5:27", "values.worker.number"),
        ("{worker: {number: x}}", "5:27", "integer"),
        ("{worker: null}", "5:18", "null deletes a value that the chart needs"),
        ("{worker: {slots: null}}", "5:26", "give it integer instead"),
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
    rendered = values(
        "nodes: [{name: a, count: 1, coresPerSocket: 1}, {name: b, count: 1, gpus: 1}]\n"
        "volumes: {data: {pvc: d, groups: [b]}, output: {pvc: o, groups: [b, a]}}\n"
    )
    assert [volume["name"] for volume in rendered["volumes"]] == ["output"]
    first, second = rendered["workerGroups"]
    assert "volumes" not in first
    assert second["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "d"}}]
    assert {"name": "DATA_PATH", "value": "/data"} in second["env"]
    assert rendered["worker"]["env"] == [{"name": "OUTPUT_PATH", "value": "/output"}]


@pytest.mark.parametrize(
    "word", ["no", "on", "y", "1", "010", "1e3", "~", "", "a: b", "# x", "-", "é"]
)
def test_text_that_helm_would_read_as_another_type_is_quoted(word: str) -> None:
    assert dump({"a": word}, {}).startswith('a: "')


def test_changed_values_leave_the_spec_unchanged() -> None:
    spec = parse_spec((HEAD + NODE + "values: {worker: {affinity: {x: {}}}}\n").encode())
    checked_values(make_plan(spec))["worker"]["affinity"]["x"]["y"] = 1
    assert spec.values == {"worker": {"affinity": {"x": {}}}}


@pytest.mark.parametrize(
    ("key", "block", "expected"),
    [
        ("horovod", "horovod: {fusionThreshold: 0, cycleTime: 3.5, autotune: true}",
         {"fusionThresholdMiB": 0, "cycleTimeMs": 3.5, "autotune": True}),
        ("horovod", "horovod: {timeline: true, fusionThreshold: 64Mi}\nvolumes: {output: {pvc: a}}",
         {"fusionThresholdMiB": 64, "timeline": True}),
        ("horovod", "horovod: {timeline: false, autotune: false}", None),
        ("launch", "launch: {mode: elastic, elastic: {minRanks: 1}, hostsTimeoutSeconds: 9}",
         {"mode": "elastic", "binding": {"to": "none"}, "elastic": {"minRanks": 1},
          "hostsTimeoutSeconds": 9}),
        ("launch", "launch: {mode: custom}", {"mode": "custom"}),
        ("launch", "launch: {options: [-x, A]}",
         {"binding": {"to": "core", "coresPerRank": 4}, "options": ["-x", "A"]}),
        ("image", "image: {repository: a/b, pullPolicy: Never}",
         {"repository": "a/b", "pullPolicy": "Never"}),
        ("imagePullSecrets", "image: {repository: a, pullSecrets: [b, c]}",
         [{"name": "b"}, {"name": "c"}]),
        ("network", "", None),
        ("volumes", "volumes: {data: {nfs: {server: s, path: /p}, readOnly: true}}",
         [{"name": "data", "nfs": {"server": "s", "path": "/p", "readOnly": True}}]),
        ("volumes", "volumes: {data: {pvc: a, readOnly: true}}",
         [{"name": "data", "persistentVolumeClaim": {"claimName": "a", "readOnly": True}}]),
        ("volumes", "volumes: {data: {hostPath: /a, readOnly: true}}",
         [{"name": "data", "hostPath": {"path": "/a", "type": "Directory"}}]),
        ("volumes", "volumes: {data: {hostPath: /a}}",
         [{"name": "data", "hostPath": {"path": "/a", "type": "DirectoryOrCreate"}}]),
        ("volumes", "volumes: {x: {configMap: a, mountPath: /x}}",
         [{"name": "x", "configMap": {"name": "a"}}]),
        ("volumes", "volumes: {x: {emptyDir: {medium: Memory}, mountPath: /x}}",
         [{"name": "x", "emptyDir": {"medium": "Memory"}}]),
        ("volumeMounts", "volumes: {x: {pvc: a, mountPath: /x/, subPath: s, readOnly: true}}",
         [{"name": "x", "mountPath": "/x", "readOnly": True, "subPath": "s"}]),
    ],
)  # fmt: skip
def test_spec_key_becomes_chart_value(key: str, block: str, expected: Any) -> None:
    assert values(f"{NODE}{block}\n").get(key) == expected


def test_scheduling_keys_of_the_first_group_are_those_of_the_master() -> None:
    toleration = "{key: k, operator: Equal, value: v, effect: NoExecute, tolerationSeconds: 5}"
    rendered = values(
        f"nodes: [{{name: a, count: 1, gpus: 1, tolerations: [{toleration}], "
        "affinity: {b: {}}, nodeSelector: {c: d}}]\n"
    )
    for pod in (rendered["worker"], rendered["master"]):
        assert pod["nodeSelector"] == {"c": "d"}
        assert pod["affinity"] == {"b": {}}
        assert pod["tolerations"] == [
            {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute",
             "tolerationSeconds": 5}
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("group", "spread"),
    [
        ("gpus: 1", "Required"),
        ("gpus: 1, affinity: {podAntiAffinity: {}}", None),
        ("coresPerSocket: 1, shared: true", None),
    ],
)
def test_workers_are_spread_over_nodes_unless_shared_or_placed(
    group: str, spread: str | None
) -> None:
    rendered = values(f"nodes: [{{name: a, count: 1, {group}}}]\n")
    assert rendered["worker"].get("spread") == spread


def test_merge_replaces_lists_and_copies_both_sides() -> None:
    base: dict[str, Any] = {"a": {"b": [1], "c": 1}, "d": {"e": {}}}
    newer: dict[str, Any] = {"a": {"b": [2], "c": None}, "d": 3, "f": {"g": []}}
    merged = merge_values(base, newer)
    assert merged == {"a": {"b": [2], "c": None}, "d": 3, "f": {"g": []}}
    merged["f"]["g"].append(1)
    merged["a"]["b"].append(1)
    assert (newer["f"], newer["a"]["b"], base["a"]) == ({"g": []}, [2], {"b": [1], "c": 1})


def test_needless_nulls_are_omitted_at_every_level() -> None:
    defaults = {"a": {"b": 1, "c": None}, "d": 0}
    rendered = {"a": {"b": None, "c": None, "x": None}, "d": None, "y": {"z": None}, "l": [None]}
    assert omit_needless_nulls(rendered, defaults) == {
        "a": {"b": None}, "d": None, "y": {}, "l": [None],
    }  # fmt: skip
    assert list(null_paths(rendered)) == [("a", "b"), ("a", "c"), ("a", "x"), ("d",), ("y", "z")]


def test_schema_at_follows_keys_items_and_references() -> None:
    schema = {
        "properties": {
            "list": {"items": {"properties": {"x": {"type": "integer"}}}},
            "named": {"$ref": "#/definitions/texts"},
            "open": {"type": "object"},
            "closed": {"properties": {"a": {}}, "additionalProperties": False},
        },
        "definitions": {"texts": {"additionalProperties": {"type": "string"}}},
    }
    assert schema_at(schema, ["list", 0, "x"]) == {"type": "integer"}
    assert schema_at(schema, ["named", "any"]) == {"type": "string"}
    assert schema_at(schema, ["open", "any", "key"]) == {}
    assert schema_at(schema, ["closed", "a"]) == {}
    assert schema_at(schema, ["closed", "b"]) is None
    assert schema_at(schema, ["missing"]) is None
    assert schema_at(schema, []) == schema
