"""Data and code: staging, and the ConfigMap of the code."""

from __future__ import annotations

import json

import pytest

from tests.chart.cases import DATA, STAGING, on_disk
from tests.chart.render import (
    Manifest,
    Values,
    containers_of,
    of_kind,
    one,
    pod_spec,
    render,
    run_settings,
)


def test_staging_can_write_its_own_data_and_reads_other_data_only() -> None:
    """In each group of workers, which read the data that staging writes."""
    groups = {"workerGroups": [{"name": "a"}, {"name": "b"}]}
    for workload in of_kind(render({**DATA, **groups, "staging": STAGING}), "StatefulSet"):
        spec = pod_spec(workload)
        (container,) = spec["initContainers"]
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert mounts["/data"] == {"name": "data", "mountPath": "/data", "subPath": "x"}
        assert mounts["/data-of-others"]["readOnly"] is True
        assert DATA["volumeMounts"][0] in spec["containers"][0]["volumeMounts"]


@pytest.mark.parametrize("path", ["/data/set", "/tmp/set"])
def test_staging_with_a_tmp_of_its_own_mounts_each_path_once(path: str) -> None:
    """The API server refuses a path twice. The user's /tmp is theirs where the data are in it."""
    values: Values = {
        "volumes": [{"name": "disk", "hostPath": {"path": "/mnt"}}],
        "volumeMounts": [
            {"name": "disk", "mountPath": "/data"},
            {"name": "disk", "mountPath": "/tmp", "subPath": "x"},
        ],
        "staging": {**STAGING, "path": path},
    }
    containers = containers_of(render(values))
    (staging,) = (container for container in containers if container["name"] == "staging")
    mounts = [(mount["mountPath"], mount["name"]) for mount in staging["volumeMounts"]]
    assert len(dict(mounts)) == len(mounts)
    assert dict(mounts)["/tmp"] == ("disk" if path.startswith("/tmp") else "tmp")
    assert dict(mounts)["/data"] == "disk"


def test_staging_does_not_run_in_the_master() -> None:
    manifests = render({**DATA, "staging": STAGING})
    assert "initContainers" not in pod_spec(one(manifests, "Job"))


def staging_key(**changes: object) -> str:
    """The key by which staging knows whether it has fetched this source."""
    manifests = render({**DATA, "staging": {**STAGING, **changes}})
    (container,) = pod_spec(one(manifests, "StatefulSet"))["initContainers"]
    return {entry["name"]: str(entry["value"]) for entry in container["env"]}["STAGING_KEY"]


def test_staging_key_changes_with_its_source_and_not_with_the_verification() -> None:
    of_sources = {
        staging_key(),
        staging_key(command=["true"]),
        staging_key(env=[{"name": "A", "value": "1"}]),
    }
    assert len(of_sources) == 3
    assert staging_key(verify="Checksum") == staging_key()


def node_list(values: Values) -> str:
    """The list of the nodes that have the data, as the master of such a release knows it."""
    manifests = render({**DATA, "staging": STAGING, **values})
    (group,) = run_settings(manifests)["groups"]
    name: str = group["staged"]
    creating = [rule for rule in one(manifests, "Role")["rules"] if "create" in rule["verbs"]]
    granted = [(rule["resources"], rule.get("resourceNames")) for rule in creating]
    of_each_release = [(["events"], None), (["configmaps"], ["hvd-run"])]
    assert granted == [*of_each_release, *([(["configmaps"], [name])] if name else [])]
    return name


ON_DISK = on_disk("/mnt/data/x")
ELSEWHERE = on_disk("/mnt/data/x", mountPath="/elsewhere/")


@pytest.mark.parametrize(
    "values",
    [
        {**on_disk("/mnt/data", subPath="x"), "worker": {"number": 9}},
        {**ELSEWHERE, "staging": {**STAGING, "path": "/elsewhere/set"}},
    ],
    ids=["part of a volume", "other mount"],
)
@pytest.mark.promise("releases share the node list of what is in one directory")
def test_releases_share_the_node_list_of_what_is_in_one_directory(values: Values) -> None:
    assert node_list(values) == node_list(ON_DISK)


@pytest.mark.parametrize(
    "values",
    [
        {**ON_DISK, "staging": {**STAGING, "command": ["true"]}},
        {**ON_DISK, "staging": {**STAGING, "path": "/data/other"}},
        on_disk("/mnt/data/y"),
    ],
    ids=["other source", "other directory", "other volume"],
)
def test_other_data_have_a_node_list_of_their_own(values: Values) -> None:
    other = node_list(values)
    assert other.startswith("horovod-staged-")
    assert other != node_list(ON_DISK)


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
def test_no_node_is_listed_for_data_that_no_directory_of_a_node_has(values: Values) -> None:
    assert node_list({**on_disk("/mnt/data"), **values}) == ""


SCRIPT = "print('hello')\n"


def code_config_maps(manifests: list[Manifest]) -> list[Manifest]:
    return [
        item for item in of_kind(manifests, "ConfigMap") if "-code-" in item["metadata"]["name"]
    ]


def test_only_the_master_mounts_the_code() -> None:
    manifests = render({"code": {"files": {"train.py": SCRIPT}}})
    (config_map,) = code_config_maps(manifests)
    assert config_map["data"] == {"train.py": SCRIPT}
    assert config_map["immutable"] is True
    name = config_map["metadata"]["name"]
    assert name in json.dumps(one(manifests, "Job"))
    assert name not in json.dumps(one(manifests, "StatefulSet"))


def test_name_without_its_backslash_is_the_same_file() -> None:
    """A shell removes the backslash of an unquoted `code.files.train\\.py`."""
    quoted = render({"code": {"files": {"train.v2.py": SCRIPT}}})
    unquoted = render({"code": {"files": {"train": {"v2": {"py": SCRIPT}}}}})
    assert code_config_maps(quoted) == code_config_maps(unquoted)
