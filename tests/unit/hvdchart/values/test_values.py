"""The chart's values, where the goldens do not show them, and the spec's `values` merged last."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.plan.rules import Reason
from hvdchart.spec.load import parse_spec, read_spec
from hvdchart.spec.yaml_tree import parse
from hvdchart.values.build import explain
from hvdchart.values.check import checked_values
from hvdchart.values.merge import merged_groups
from hvdchart.values.render import dump
from hvdchart.values.report import document

WITHOUT_IMAGE = "apiVersion: hvdchart/v1\nname: run\ntrain: {command: [a]}\n"
HEAD = f"{WITHOUT_IMAGE}image: {{repository: a}}\n"
NODE = "nodes: [{name: a, count: 1, coresPerSocket: 4, memory: 8Gi, nodeSelector: {k: v}}]\n"


def plan_text(text: str, file: str = "a.yaml") -> Plan:
    """The plan of a spec's text, with the places of its values."""
    tree = parse(text.encode(), file)
    return make_plan(read_spec(tree), tree)


def values(text: str) -> dict[str, Any]:
    head = WITHOUT_IMAGE if "\nimage:" in text else HEAD
    return checked_values(plan_text(head + text))


def test_null_deletes_a_planned_value_and_stays_for_a_default_of_the_chart() -> None:
    rendered = values(
        NODE + "values: {worker: {nodeSelector: {k: null}, resources: {limits: null}}, "
        "podSecurityContext: {runAsUser: null, seccompProfile: {type: null}}}\n"
    )
    assert rendered["worker"]["nodeSelector"] == {}
    assert "limits" not in rendered["worker"]["resources"]
    assert rendered["podSecurityContext"] == {"runAsUser": None, "seccompProfile": {"type": None}}


def test_a_variable_of_train_env_is_written_once_and_is_the_users() -> None:
    node = (
        "{name: a, count: 1, coresPerSocket: 4, interface: eth0}, "
        "{name: b, count: 1, coresPerSocket: 4, interface: eth1}"
    )
    user = "{OMP_NUM_THREADS: 3, DATA_PATH: /d, NCCL_SOCKET_IFNAME: lo}"
    text = "apiVersion: hvdchart/v1\nname: run\nimage: {repository: a}\n"
    text += f"train: {{command: [a], env: {user}}}\n"
    text += f"nodes: [{node}]\nvolumes: {{data: {{pvc: d}}}}\n"
    plan = make_plan(parse_spec(text.encode()))
    rendered = checked_values(plan)
    common = {entry["name"]: entry["value"] for entry in rendered["worker"]["env"]}
    assert common == {"OMP_NUM_THREADS": "3", "DATA_PATH": "/d", "NCCL_SOCKET_IFNAME": "lo"}
    for group in rendered["workerGroups"]:
        names = [entry["name"] for entry in group["env"]]
        assert "TF_NUM_INTRAOP_THREADS" in names
        assert not set(names) & set(common)
    assert plan.groups[0].env["OMP_NUM_THREADS"] == "3"
    assert explain(plan)["worker", "env", "OMP_NUM_THREADS"] == Reason(
        "train.env.OMP_NUM_THREADS instead of 4", "the spec"
    )


def test_what_values_replace_is_the_plans_number_and_reason() -> None:
    text = (
        "values: {worker: {slots: 2, number: 3, resources: {requests: {cpu: 2}}, "
        "env: [{name: TF_NUM_INTEROP_THREADS, value: '1'}]}, "
        "launch: {binding: {to: socket, coresPerRank: null, ranksPerSocket: 2}}}"
    )
    env = "worker.env.TF_NUM_INTEROP_THREADS"
    plan = plan_text(HEAD + NODE + text)
    assert (plan.workers, plan.ranks, plan.groups[0].slots) == (3, 6, 2)
    assert plan.groups[0].env["OMP_NUM_THREADS"] == "2"
    rows = document(plan)["reasons"]
    reasons = {row["value"]: (row["is"], row["because"]) for row in rows}
    for key, value, because in (
        ("worker.slots", 2, "values.worker.slots instead of 1"),
        ("worker.number", 3, "values.worker.number instead of 1"),
        ("worker.resources.requests.cpu", 2, "values.worker.resources.requests.cpu instead of 3"),
        (env, "1", f"values.{env} instead of 2"),
        ("launch.binding.to", "socket", "values.launch.binding.to instead of core"),
    ):
        assert reasons[key] == (value, because)


SPOT = (
    "nodeSelector: {cloud.google.com/gke-spot: 'true', zone: a}, tolerations: [{key: "
    "cloud.google.com/gke-spot, operator: Exists}, {key: own, value: a}]"
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms"
WANTED = "[{matchExpressions: [{key: capacity, operator: In, values: [Ec2Spot]}]}]}"
ONLY_MENTIONED = (
    "nodeSelector: {spot: 'false', team: spotify, pool: non-spot}, tolerations: [{key: "
    f"spotlight, value: x}}], affinity: {{nodeAffinity: {{{REQUIRED}: [{{matchExpressions: [{{key: "
    "capacity-type, operator: NotIn, values: [spot]}, {key: spot, operator: DoesNotExist}, {key: "
    "spot, operator: In, values: ['false']}]}]}}, podAffinity: {spot: []}}"
)
STEADY = {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "own", "value": "a"}]}


@pytest.mark.parametrize(
    ("places", "scheduling"),
    [
        (SPOT, STEADY),
        (
            f"{SPOT}}}, {{name: b, count: 1, coresPerSocket: 1, nodeSelector: {{zone: b}}",
            {"nodeSelector": {"zone": "b"}},
        ),
        (
            f"{SPOT}, affinity: {{podAffinity: {{}}, nodeAffinity: {{{REQUIRED}: {WANTED}}}}}",
            {**STEADY, "affinity": {"podAffinity": {}}},
        ),
        # As the workers.
        (ONLY_MENTIONED, None),
    ],
)
def test_master_does_not_go_to_nodes_that_are_taken_away(
    places: str, scheduling: dict[str, Any] | None
) -> None:
    plan = plan_text(f"{HEAD}nodes: [{{name: a, count: 1, coresPerSocket: 1, {places}}}]\n")
    rendered = checked_values(plan)
    keys = ("nodeSelector", "tolerations", "affinity")
    expected = scheduling or {key: rendered["worker"][key] for key in keys}
    assert {key: rendered["master"][key] for key in keys if key in rendered["master"]} == expected
    warned = [text for text in plan.warnings if "are on spot nodes" in text]
    assert bool(warned) == (scheduling is not None and "name: b" not in places)


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


@pytest.mark.parametrize(
    ("key", "block", "expected"),
    [
        (
            "launch",
            "launch: {options: [-x, A]}",
            {"binding": {"to": "core", "coresPerRank": 4}, "options": ["-x", "A"]},
        ),
        (
            "horovod",
            "horovod: {fusionThreshold: 0, autotune: true}",
            {"fusionThresholdMiB": 0, "autotune": True},
        ),
        (
            "image",
            f"image: {{repository: a/b, digest: 'sha256:{'0' * 64}'}}",
            {"repository": "a/b", "digest": f"sha256:{'0' * 64}"},
        ),
    ],
)
def test_spec_key_becomes_chart_value(key: str, block: str, expected: Any) -> None:
    assert values(f"{NODE}{block}\n").get(key) == expected


def test_groups_are_merged_as_the_templates_merge_them() -> None:
    worker = {
        "number": 2,
        "slots": 1,
        "env": [1],
        "nodeSelector": {"a": "b"},
        "affinity": {"c": {"e": 1}},
    }
    groups = [
        {"name": "a"},
        {
            "name": "b",
            "number": 3,
            "slots": None,
            "env": [2],
            "volumes": [4],
            "nodeSelector": {"d": "e"},
            "affinity": {"c": {}},
        },
    ]
    given = {"worker": worker, "workerGroups": groups, "volumes": [3], "volumeMounts": []}
    shared = {"volumes": [3], "volumeMounts": []}
    first, second = merged_groups(given)
    assert first == {**worker, **shared, "name": "a"}
    assert second == {
        "name": "b",
        "number": 3,
        "env": [1, 2],
        "nodeSelector": {"a": "b", "d": "e"},
        "affinity": {"c": {}},
        "volumes": [3, 4],
        "volumeMounts": [],
    }
    assert merged_groups({**given, "workerGroups": []}) == [{**worker, **shared, "name": "worker"}]
