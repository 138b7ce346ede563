"""Data, results and code: staging, storing after the training, and the ConfigMap of the code."""

from __future__ import annotations

import json

import pytest

from tests.chart.render import (
    Manifest,
    Values,
    main_container,
    of_kind,
    one,
    pod_spec,
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


def staging(**changes: object) -> Manifest:
    """Return the staging container of the workers."""
    manifests = render({**DATA, "staging": {**STAGING, **changes}})
    assert init_containers(one(manifests, "Job")) == []
    (container,) = init_containers(one(manifests, "StatefulSet"))
    return container


def test_staging_runs_in_workers_and_writes_what_they_read() -> None:
    groups = {"workerGroups": [{"name": "a"}, {"name": "b"}]}
    for workers in of_kind(render({**DATA, **groups, "staging": STAGING}), "StatefulSet"):
        (container,) = init_containers(workers)
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert mounts["/data"] == {"name": "data", "mountPath": "/data", "subPath": "x"}
        assert mounts["/data-of-others"]["readOnly"] is True
        assert DATA["volumeMounts"][0] in pod_spec(workers)["containers"][0]["volumeMounts"]


def test_staging_key_changes_with_its_source() -> None:
    def key(**changes: object) -> str:
        (entry,) = (e for e in staging(**changes)["env"] if e["name"] == "STAGING_KEY")
        return str(entry["value"])

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


OUTPUT: Values = {
    "volumes": [{"name": "out", "persistentVolumeClaim": {"claimName": "out"}}],
    "volumeMounts": [{"name": "out", "mountPath": "/output"}],
    "worker": {"env": [{"name": "OUTPUT_PATH", "value": "/output/run"}]},
}


def test_master_without_results_to_store_knows_of_none() -> None:
    manifests = render(OUTPUT)
    assert run_settings(manifests)["results"] == {}
    assert init_containers(one(manifests, "Job")) == []
    assert OUTPUT["volumeMounts"][0] in main_container(manifests, "Job")["volumeMounts"]


SCRIPT = "print('hello')\n"


def code_config_maps(manifests: list[Manifest]) -> list[Manifest]:
    return [
        item for item in of_kind(manifests, "ConfigMap") if "-code-" in item["metadata"]["name"]
    ]


def test_single_script_is_the_command_unless_one_is_given_and_only_the_master_mounts_it() -> None:
    code: Values = {"code": {"files": {"train.py": SCRIPT}}}
    manifests = render(code)
    assert run_settings(manifests)["args"] == ["python3", "train.py"]
    given = render({**code, "master": {"args": ["python", "-u"]}})
    assert run_settings(given)["args"] == ["python", "-u"]
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


def test_requirements_are_installed_unless_they_are_ignored() -> None:
    code = {"files": {"train.py": SCRIPT, "requirements.txt": "einops"}}
    values: Values = {"code": code, "master": {"args": ["python3", "train.py"]}}
    assert run_settings(render(values))["requirements"] is True
    values["code"] = {**code, "requirements": "Ignore"}
    assert run_settings(render(values))["requirements"] is False
