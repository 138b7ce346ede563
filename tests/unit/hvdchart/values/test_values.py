"""The chart's values, where the goldens do not show them, and the spec's `values` merged last."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.plan.rules import Reason
from hvdchart.spec.load import parse_spec
from hvdchart.values.check_values import checked_values
from hvdchart.values.from_plan import explain
from hvdchart.values.merge import merged_groups
from hvdchart.values.plan_text import document
from hvdchart.values.render import dump, render_values
from tests.support.specs import NAMED, NODE, plan_text, values_of_text


def test_null_deletes_a_planned_value() -> None:
    rendered = values_of_text(
        NODE + "values: {worker: {nodeSelector: {k: null}, resources: {limits: null}}}\n"
    )
    assert rendered["worker"]["nodeSelector"] == {}
    assert "limits" not in rendered["worker"]["resources"]


def test_null_stays_for_a_default_of_the_chart() -> None:
    security: dict[str, Any] = {"runAsUser": None, "seccompProfile": {"type": None}}
    rendered = values_of_text(
        NODE + "values: {podSecurityContext: {runAsUser: null, seccompProfile: {type: null}}}\n"
    )
    assert rendered["podSecurityContext"] == security


@pytest.fixture(scope="module")
def with_env() -> Plan:
    """The plan of two groups whose variables a person has set in part."""
    node = (
        "{name: a, count: 1, coresPerSocket: 4, interface: eth0}, "
        "{name: b, count: 1, coresPerSocket: 4, interface: eth1}"
    )
    user = "{OMP_NUM_THREADS: 3, DATA_PATH: /d, NCCL_SOCKET_IFNAME: lo}"
    text = "apiVersion: hvdchart/v1\nname: run\nimage: {repository: a}\n"
    text += f"train: {{command: [a], env: {user}}}\n"
    text += f"nodes: [{node}]\nvolumes: {{data: {{pvc: d}}}}\n"
    return make_plan(parse_spec(text.encode()))


USERS = {"OMP_NUM_THREADS": "3", "DATA_PATH": "/d", "NCCL_SOCKET_IFNAME": "lo"}


def test_variables_of_train_env_are_those_of_all_workers_alone(with_env: Plan) -> None:
    checked = checked_values(with_env)
    assert {entry["name"]: entry["value"] for entry in checked["worker"]["env"]} == USERS
    for group in checked["workerGroups"]:
        names = {entry["name"] for entry in group["env"]}
        assert "TF_NUM_INTRAOP_THREADS" in names
        assert not names & USERS.keys()


def test_variable_of_train_env_is_the_planned_one_with_its_reason(with_env: Plan) -> None:
    assert with_env.groups[0].env["OMP_NUM_THREADS"] == "3"
    assert explain(with_env)["worker", "env", "OMP_NUM_THREADS"] == Reason(
        "train.env.OMP_NUM_THREADS instead of 4", "the spec"
    )


@pytest.fixture(scope="module")
def replaced() -> Plan:
    """The plan of a spec whose values replace planned ones."""
    return plan_text(
        NAMED + NODE + "values: {worker: {slots: 2, number: 3, resources: {requests: {cpu: 2}}, "
        "env: [{name: TF_NUM_INTEROP_THREADS, value: '1'}]}, "
        "launch: {binding: {to: socket, coresPerRank: null, ranksPerSocket: 2}}}"
    )


def test_what_values_replace_is_planned_with(replaced: Plan) -> None:
    assert (replaced.workers, replaced.ranks, replaced.groups[0].slots) == (3, 6, 2)
    assert replaced.groups[0].env["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize(
    ("key", "value", "planned"),
    [
        ("worker.slots", 2, "1"),
        ("worker.number", 3, "1"),
        ("worker.resources.requests.cpu", 2, "3"),
        ("worker.env.TF_NUM_INTEROP_THREADS", "1", "2"),
        ("launch.binding.to", "socket", "core"),
    ],
)
def test_what_values_replace_has_the_values_for_its_reason(
    replaced: Plan, key: str, value: object, planned: str
) -> None:
    rows = document(replaced)["reasons"]
    reasons = {row["value"]: (row["is"], row["because"]) for row in rows}
    assert reasons[key] == (value, f"values.{key} instead of {planned}")


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
    plan = plan_text(f"{NAMED}nodes: [{{name: a, count: 1, coresPerSocket: 1, {places}}}]\n")
    rendered = checked_values(plan)
    keys = ("nodeSelector", "tolerations", "affinity")
    expected = scheduling or {key: rendered["worker"][key] for key in keys}
    assert {key: rendered["master"][key] for key in keys if key in rendered["master"]} == expected
    warned = [text for text in plan.warnings if "are on spot nodes" in text]
    assert bool(warned) == (scheduling is not None and "name: b" not in places)


def test_volume_is_mounted_in_all_groups_or_in_some() -> None:
    of_two_groups = values_of_text(
        "nodes: [{name: a, count: 1, coresPerSocket: 1}, {name: b, count: 1, gpus: 1}]\n"
        "volumes: {data: {pvc: d, groups: [b]}, output: {pvc: o, groups: [b, a]}}\n"
    )
    assert [volume["name"] for volume in of_two_groups["volumes"]] == ["output"]
    assert of_two_groups["worker"]["env"] == [{"name": "OUTPUT_PATH", "value": "/output"}]
    first, second = of_two_groups["workerGroups"]
    assert "volumes" not in first
    assert second["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "d"}}]
    assert {"name": "DATA_PATH", "value": "/data"} in second["env"]


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
            "horovod: {fusionThresholdMiB: 0, autotune: true}",
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
    assert values_of_text(f"{NODE}{block}\n").get(key) == expected


WORKER: dict[str, Any] = {
    "number": 2,
    "slots": 1,
    "env": [1],
    "nodeSelector": {"a": "b"},
    "affinity": {"c": {"e": 1}},
}
SHARED: dict[str, Any] = {"volumes": [3], "volumeMounts": []}


@pytest.mark.parametrize(("groups", "name"), [([{"name": "a"}], "a"), ([], "worker")])
def test_group_without_keys_of_its_own_is_as_the_workers(groups: list[Any], name: str) -> None:
    """Workers without groups are the group `worker`."""
    (group,) = merged_groups({"worker": WORKER, "workerGroups": groups, **SHARED})
    assert group == {**WORKER, **SHARED, "name": name}


def test_keys_of_a_group_are_merged_as_the_templates_merge_them() -> None:
    """Lists are joined, null deletes a key, and each kind of affinity is replaced."""
    entry = {
        "name": "b",
        "number": 3,
        "slots": None,
        "env": [2],
        "volumes": [4],
        "nodeSelector": {"d": "e"},
        "affinity": {"c": {}},
    }
    (group,) = merged_groups({"worker": WORKER, "workerGroups": [entry], **SHARED})
    assert group == {
        "name": "b",
        "number": 3,
        "env": [1, 2],
        "nodeSelector": {"a": "b", "d": "e"},
        "affinity": {"c": {}},
        "volumes": [3, 4],
        "volumeMounts": [],
    }


DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("overrides", "image"),
    [
        ({"tag": "2"}, {"repository": "a", "tag": "2"}),
        ({"repository": "b"}, {"repository": "b", "tag": "1"}),
        ({"digest": "other"}, {"repository": "a", "digest": "other"}),
        ({"tag": "2", "digest": "other"}, {"repository": "a", "tag": "2", "digest": "other"}),
        (
            {"pullPolicy": "Always"},
            {"repository": "a", "tag": "1", "digest": DIGEST, "pullPolicy": "Always"},
        ),
        ({"tag": ""}, {"repository": "a", "tag": "", "digest": DIGEST}),
        ({"digest": None}, {"repository": "a", "tag": "1"}),
        ({}, {}),
    ],
)
def test_digest_of_the_workers_is_for_their_own_repository_and_tag(
    overrides: dict[str, Any], image: dict[str, Any]
) -> None:
    worker = {"image": {"repository": "a", "tag": "1", "digest": DIGEST}}
    (group,) = merged_groups(
        {"worker": worker, "workerGroups": [{"name": "b", "image": overrides}], **SHARED}
    )
    assert group["image"] == image


def test_origin_stays_in_its_comment(with_env: Plan) -> None:
    """The name of a file may have a line end."""
    head, *rest = render_values(with_env, "a\nmaster: {suspend: true}").splitlines()
    assert "suspend" in head
    assert not [line for line in rest if "suspend" in line]
