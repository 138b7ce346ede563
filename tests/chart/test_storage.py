"""Staging fills a directory of a volume before the workers start."""

from __future__ import annotations

import pytest

from tests.chart.render import (
    IMAGE,
    Manifest,
    Values,
    of_kind,
    one,
    pod_spec,
    refusal,
    render,
    run_settings,
)

DATA: Values = {
    "volumes": [
        {"name": "data", "hostPath": {"path": "/mnt/data"}},
        {"name": "other", "emptyDir": {}},
    ],
    "volumeMounts": [
        {"name": "data", "mountPath": "/data", "readOnly": True, "subPath": "x"},
        {"name": "other", "mountPath": "/data-of-others", "readOnly": True},
    ],
}
STAGING: Values = {"path": "/data/set", "command": ["curl", "-fO", "https://host.example/set"]}


def init_containers(workload: Manifest) -> list[Manifest]:
    """Return the init containers of a workload."""
    containers: list[Manifest] = pod_spec(workload).get("initContainers", [])
    return containers


def staging(values: Values) -> Manifest:
    """Return the staging container of the workers."""
    (container,) = init_containers(one(render({**DATA, **values}), "StatefulSet"))
    return container


def environment(container: Manifest) -> dict[str, str]:
    """Return the container's variables that have a plain value."""
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


def test_staging_runs_in_workers_only() -> None:
    groups = {"workerGroups": [{"name": "a"}, {"name": "b"}]}
    manifests = render({**DATA, **groups, "staging": STAGING})
    for workers in of_kind(manifests, "StatefulSet"):
        assert [container["name"] for container in init_containers(workers)] == ["staging"]
    assert init_containers(one(manifests, "Job")) == []


def test_staging_mounts_read_only_volumes_writable() -> None:
    container = staging({"staging": STAGING})
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts["/data"] == {"name": "data", "mountPath": "/data", "subPath": "x"}
    assert mounts["/data-of-others"]["readOnly"] is True
    workers = one(render({**DATA, "staging": STAGING}), "StatefulSet")
    of_worker = pod_spec(workers)["containers"][0]["volumeMounts"]
    assert DATA["volumeMounts"][0] in of_worker


def test_staging_takes_any_image_and_command() -> None:
    container = staging({"staging": STAGING})
    assert container["command"] == ["sh", "/horovod/bin/stage.sh", *STAGING["command"]]
    assert container["image"] == f"{IMAGE}:0.28.1-tf2.21.0"
    token = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "token"}}}
    image = {"repository": "rclone/rclone", "tag": "1.70"}
    container = staging({"staging": {**STAGING, "image": image, "env": [token]}})
    assert container["image"] == "rclone/rclone:1.70"
    assert token in container["env"]


def test_staging_key_changes_with_its_source() -> None:
    def key(**changes: object) -> str:
        return environment(staging({"staging": {**STAGING, **changes}}))["STAGING_KEY"]

    assert key() == key(verify="Checksum"), "verification does not change the source"
    assert len({key(), key(command=["true"]), key(env=[{"name": "A", "value": "1"}])}) == 3


def test_staging_requests_the_workers_resources() -> None:
    exact = {"cpu": 4, "memory": "8Gi"}
    resources = {"requests": exact, "limits": exact}
    container = staging({"staging": STAGING, "worker": {"resources": resources}})
    assert container["resources"] == resources


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({**DATA, "staging": {"command": ["true"]}}, ["staging.command", "staging.path is empty"]),
        ({**DATA, "staging": {"path": "/data/x"}}, ["staging.path", "staging.command is empty"]),
        ({"staging": STAGING}, ['staging.path is "/data/set"', "volumeMounts", 'group "worker"']),
        ({**DATA, "staging": {**STAGING, "path": "/data/"}}, ["staging.path", "mountPath"]),
        ({**DATA, "staging": {**STAGING, "path": "/database"}}, ["/database", "volumeMounts"]),
    ],
)
def test_impossible_staging_is_refused(values: Values, words: list[str]) -> None:
    message = refusal(values)
    for word in words:
        assert word in message


def record(values: Values) -> str:
    """The record of the nodes that have the data, as the master of such a release knows it."""
    manifests = render({**DATA, "staging": STAGING, **values})
    (group,) = run_settings(manifests)["groups"]
    name: str = group["staged"]
    rules = [
        rule for rule in one(manifests, "Role")["rules"] if rule.get("resourceNames") == [name]
    ]
    assert [rule["verbs"] for rule in rules] == ([["get", "create", "patch"]] if name else [])
    return name


def on_disk(path: str, **mount: object) -> Values:
    """A directory of the node as the volume for the data."""
    return {
        "volumes": [{"name": "data", "hostPath": {"path": path}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", **mount}],
    }


def test_releases_share_the_record_of_what_is_in_one_directory_of_the_nodes() -> None:
    first = record(on_disk("/mnt/data/x"))
    assert first.startswith("horovod-staged-")
    assert record(on_disk("/mnt/data", subPath="x")) == first
    moved = on_disk("/mnt/data/x", mountPath="/elsewhere/")
    assert record({**moved, "staging": {**STAGING, "path": "/elsewhere/set"}}) == first
    assert record({**on_disk("/mnt/data/x"), "worker": {"number": 9}}) == first
    for other in (
        {**on_disk("/mnt/data/x"), "staging": {**STAGING, "command": ["true"]}},
        {**on_disk("/mnt/data/x"), "staging": {**STAGING, "path": "/data/other"}},
        on_disk("/mnt/data/y"),
    ):
        assert record(other).startswith("horovod-staged-")
        assert record(other) != first


@pytest.mark.parametrize(
    "values",
    [
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        {"staging": {**STAGING, "nodes": "Any"}},
        on_disk("/mnt", subPathExpr="$(POD)"),
    ],
    ids=["claim", "Any", "directory of each pod"],
)
def test_nothing_is_recorded_of_data_that_no_directory_of_a_node_has(values: Values) -> None:
    base = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    assert record({**on_disk("/mnt/data"), **base, **values}) == ""


def test_release_without_staging_has_no_record_and_no_right_to_one() -> None:
    manifests = render(DATA)
    (group,) = run_settings(manifests)["groups"]
    assert group["staged"] == ""
    granted = [rule for rule in one(manifests, "Role")["rules"] if "create" in rule["verbs"]]
    assert [rule["resources"] for rule in granted] == [["events"]]
