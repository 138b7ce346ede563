"""The objects that the chart creates, their programs, and what they have in common."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from tests.chart.render import (
    CHART,
    Manifest,
    Values,
    containers_of,
    main_container,
    of_kind,
    one,
    pod_spec,
    pod_specs,
    ready_cases,
    ready_manifests,
    render,
    run_settings,
)
from tests.chart.test_security import EVERY_POD

DEFAULT_CENSUS = {
    "ConfigMap": 9,
    "Job": 1,
    "NetworkPolicy": 1,
    "Pod": 1,
    "Role": 1,
    "RoleBinding": 1,
    "Secret": 1,
    "Service": 1,
    "ServiceAccount": 1,
    "StatefulSet": 1,
}
NAMESPACED = {
    *DEFAULT_CENSUS,
    "Deployment",
    "PodDisruptionBudget",
    "PodGroup",
    "PodMonitor",
    "PrometheusRule",
}
GROUPS: Values = {
    "worker": {"number": 3, "env": [{"name": "A", "value": "1"}]},
    "workerGroups": [
        {"name": "cpu", "slots": 2},
        {
            "name": "gpu",
            "number": 2,
            "slots": 4,
            "resources": {"limits": {"nvidia.com/gpu": 4}},
            "env": [{"name": "B", "value": "2"}],
            "image": {"tag": "cuda"},
        },
    ],
}
NO_ACCOUNT: Values = {"serviceAccount": {"create": False}}


@pytest.mark.parametrize(
    ("values", "difference"),
    [
        ({}, {}),
        (GROUPS, {"StatefulSet": 1}),
        ({"ssh": {"existingSecret": "mine"}}, {"Secret": -1}),
        (
            NO_ACCOUNT,
            {"ConfigMap": -1, "Pod": -1, "Role": -1, "RoleBinding": -1, "ServiceAccount": -1},
        ),
    ],
)
def test_default_objects_are_complete(values: Values, difference: dict[str, int]) -> None:
    expected = Counter(DEFAULT_CENSUS)
    expected.update(difference)
    assert Counter(manifest["kind"] for manifest in render(values)) == +expected


@pytest.mark.parametrize("case", ready_cases())
def test_objects_are_namespaced_and_extend_nothing(case: str) -> None:
    """A CustomResourceDefinition, a webhook or a ClusterRole would need cluster-wide rights."""
    assert {manifest["kind"] for manifest in ready_manifests(case)} <= NAMESPACED


@pytest.mark.parametrize("values", [{}, GROUPS], ids=["default", "groups"])
def test_helm_3_and_helm_4_render_the_same(values: Values) -> None:
    """Helm 4 omits keys whose default is null; Helm 3 passes them to the templates."""
    assert render(values, helm="helm3") == render(values, helm="helm4")


def test_any_file_may_be_rendered_first() -> None:
    """Helm decides the order of the files, so that each of them prepares the values."""
    files = [file for file in (CHART / "templates").rglob("*.*") if file.suffix != ".tpl"]
    for file in files:
        assert '{{- include "horovod.prepare" . -}}' in file.read_text(), file


def test_master_knows_its_hosts_and_command() -> None:
    args = ["python", "train.py", "--name=$(HOME)", 'quote"d', "back\\slash", "a b", "é"]
    manifests = render({**GROUPS, "master": {"args": args}})
    settings = run_settings(manifests)
    listed = [(each["statefulSet"], each["number"], each["slots"]) for each in settings["groups"]]
    assert listed == [("hvd-cpu", 3, 2), ("hvd-gpu", 2, 4)]
    assert settings["args"] == args
    # It lists the pods of its workers by these labels.
    selected = dict(term.split("=") for term in settings["workerSelector"].split(","))
    assert "app.kubernetes.io/component=worker" in settings["workerSelector"]
    for workers in of_kind(manifests, "StatefulSet"):
        assert selected.items() <= workers["spec"]["template"]["metadata"]["labels"].items()
    assert "-u" in main_container(manifests, "Job")["command"], "write each line of the log at once"


def test_helm_test_pod_equals_the_master_except_for_its_program() -> None:
    manifests = render()
    pod = one(manifests, "Pod")
    job = one(manifests, "Job")
    annotations = pod["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "test"
    # `helm uninstall` would leave the pod of a test that failed.
    policies = annotations["helm.sh/hook-delete-policy"].split(",")
    assert set(policies) == {"before-hook-creation", "hook-succeeded", "hook-failed"}
    assert pod["spec"]["activeDeadlineSeconds"] < 300, "Helm's default time-out"
    (tester,) = pod["spec"]["containers"]
    (master,) = pod_spec(job)["containers"]
    listed = {entry["name"]: entry.get("value") for entry in tester["env"]}
    assert listed["HVD_TESTED_JOB"] == job["metadata"]["name"]
    for key in ("image", "securityContext", "volumeMounts"):
        assert tester[key] == master[key]


def programs_of(container: Manifest) -> dict[str, str]:
    """Return the mount paths of the folders of programs, with the names of their volumes."""
    mounts = container["volumeMounts"]
    return {m["mountPath"]: m["name"] for m in mounts if m["mountPath"].startswith("/horovod/bin")}


def test_pods_mount_the_folders_of_programs_that_they_run() -> None:
    manifests = render(EVERY_POD)
    mounted = {
        container["name"]: {path.rpartition("/")[2] for path in programs_of(container)}
        for container in containers_of(manifests)
    }
    assert mounted == {
        "master": {"cluster", "common", "master", "rules"},
        "openssh": set(),
        "passwd": {"common"},
        "results": {"master"},
        "staging": {"worker"},
        "tensorboard": set(),
        "worker": {"common", "library", "rank", "warm", "worker"},
    }
    config_maps = {item["metadata"]["name"]: item for item in of_kind(manifests, "ConfigMap")}
    for spec in pod_specs(manifests).values():
        containers = [*spec.get("initContainers", []), *spec["containers"]]
        names = {name for container in containers for name in programs_of(container).values()}
        volumes = {v["name"]: v for v in spec["volumes"] if v["name"].startswith("programs-")}
        assert volumes.keys() == names, "a folder that no container mounts"
        for container in containers:
            # The program and the folder of each command are in the pod.
            for path in re.findall(r"(\S+)/(\w+\.(?:py|sh))", " ".join(container["command"])):
                source = volumes[programs_of(container)[path[0]]]["configMap"]["name"]
                assert path[1] in config_maps[source]["data"]


def test_objects_fit_into_the_annotation_of_kubectl_apply() -> None:
    """Plain `kubectl apply` repeats an object in an annotation; all of them have 256 KiB."""
    sizes = {item["metadata"]["name"]: len(json.dumps(item)) for item in render({})}
    assert max(sizes.values()) < 250 * 1024, sizes
