"""Data, results and code: staging, storing after the training, and the ConfigMap of the code."""

from __future__ import annotations

import json

import pytest

from tests.chart.render import Manifest, Values, of_kind, one, pod_spec, render, run_settings

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


def test_staging_runs_in_workers_and_writes_what_they_read() -> None:
    groups = {"workerGroups": [{"name": "a"}, {"name": "b"}]}
    for workers in of_kind(render({**DATA, **groups, "staging": STAGING}), "StatefulSet"):
        (container,) = pod_spec(workers)["initContainers"]
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert mounts["/data"] == {"name": "data", "mountPath": "/data", "subPath": "x"}
        assert mounts["/data-of-others"]["readOnly"] is True
        assert DATA["volumeMounts"][0] in pod_spec(workers)["containers"][0]["volumeMounts"]


def test_staging_key_changes_with_its_source() -> None:
    def key(**changes: object) -> str:
        manifests = render({**DATA, "staging": {**STAGING, **changes}})
        assert "initContainers" not in pod_spec(one(manifests, "Job"))
        (container,) = pod_spec(one(manifests, "StatefulSet"))["initContainers"]
        return {entry["name"]: str(entry["value"]) for entry in container["env"]}["STAGING_KEY"]

    assert key() == key(verify="Checksum"), "verification does not change the source"
    assert len({key(), key(command=["true"]), key(env=[{"name": "A", "value": "1"}])}) == 3


def record(values: Values) -> str:
    """The record of the nodes that have the data, as the master of such a release knows it."""
    manifests = render({**DATA, "staging": STAGING, **values})
    (group,) = run_settings(manifests)["groups"]
    name: str = group["staged"]
    creating = [rule for rule in one(manifests, "Role")["rules"] if "create" in rule["verbs"]]
    granted = [(rule["resources"], rule.get("resourceNames")) for rule in creating]
    assert granted == [(["events"], None), *([(["configmaps"], [name])] if name else [])]
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
    assert record({**on_disk("/mnt/data", subPath="x"), "worker": {"number": 9}}) == first
    moved = on_disk("/mnt/data/x", mountPath="/elsewhere/")
    assert record({**moved, "staging": {**STAGING, "path": "/elsewhere/set"}}) == first
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
        {"staging": {}},
    ],
    ids=["claim", "Any", "directory of each pod", "no staging"],
)
def test_nothing_is_recorded_of_data_that_no_directory_of_a_node_has(values: Values) -> None:
    assert record({**on_disk("/mnt/data"), **values}) == ""


SCRIPT = "print('hello')\n"


def code_config_maps(manifests: list[Manifest]) -> list[Manifest]:
    return [
        item for item in of_kind(manifests, "ConfigMap") if "-code-" in item["metadata"]["name"]
    ]


def test_only_the_master_mounts_the_code() -> None:
    manifests = render({"code": {"files": {"train.py": SCRIPT}}})
    (config_map,) = code_config_maps(manifests)
    assert (config_map["data"], config_map["immutable"]) == ({"train.py": SCRIPT}, True)
    name = config_map["metadata"]["name"]
    assert name in json.dumps(one(manifests, "Job"))
    assert name not in json.dumps(one(manifests, "StatefulSet"))


def test_name_without_its_backslash_is_the_same_file() -> None:
    """A shell removes the backslash of an unquoted `code.files.train\\.py`."""
    quoted = render({"code": {"files": {"train.v2.py": SCRIPT}}})
    unquoted = render({"code": {"files": {"train": {"v2": {"py": SCRIPT}}}}})
    assert code_config_maps(quoted) == code_config_maps(unquoted)
