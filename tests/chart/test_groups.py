"""Worker groups: what they inherit from `worker`, how they clear it, and their spares."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.chart_files import is_gpu
from tests.chart.cases import GROUPS, SPARES
from tests.chart.render import (
    IMAGE,
    Manifest,
    Values,
    helm_template,
    of_kind,
    one,
    pod_spec,
    render,
    run_settings,
    variables,
)

GPUS: Values = {
    "slots": 2,
    "resources": {"limits": {"nvidia.com/gpu": 2, "memory": "8Gi"}, "requests": {"cpu": 4}},
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"a": {}}},
    "podLabels": {"team": "seeing"},
    "podAnnotations": {"note": "gpu"},
    "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
    "image": {"tag": "cuda"},
}
# What the pod template shows of each key that a group can clear.
MARKS = {
    "nodeSelector": "nodeSelector",
    "tolerations": "tolerations",
    "podLabels": "seeing",
    "podAnnotations": "note",
    "affinity": "nodeAffinity",
    "resources": "nvidia.com/gpu",
    "env": "NCCL_DEBUG",
    "volumes": "'emptyDir': {}, 'name': 'data'",
    "volumeMounts": "'mountPath': '/data'",
}
DATA: Values = {
    "volumes": [{"name": "data", "emptyDir": {}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
}


def of_group(group: Values, **values: Any) -> Manifest:
    """Return the StatefulSet of one group that inherits GPUS and DATA."""
    groups = {"workerGroups": [{"name": "cpu", **group}], "worker": GPUS}
    return one(render({**groups, **DATA, **values}), "StatefulSet")


def test_each_group_has_a_stateful_set_and_an_image_of_its_own() -> None:
    """Its variables come after those of all workers."""
    sets = of_kind(render(GROUPS), "StatefulSet")
    replicas = {item["metadata"]["name"]: item["spec"]["replicas"] for item in sets}
    assert replicas == {"hvd-cpu": 3, "hvd-gpu": 2}
    cpu, gpu = (pod_spec(item)["containers"][0] for item in sets)
    assert cpu["image"].endswith(":0.28.1-tf2.21.0")
    assert gpu["image"] == f"{IMAGE}:cuda"
    assert [entry["name"] for entry in gpu["env"]][-2:] == ["A", "B"]


def test_master_knows_that_the_groups_ask_for_tags() -> None:
    tags = {"name": "HVD_TAG_OUTPUT", "value": "1"}
    manifests = render({"workerGroups": [{"name": name, "env": [tags]} for name in ("a", "b")]})
    assert variables(manifests, "Job")["HVD_TAG_OUTPUT"] == "1"


def test_worker_groups_inherit_from_worker() -> None:
    template = str(of_group({})["spec"]["template"])
    assert [mark for mark in MARKS.values() if mark not in template] == []


@pytest.mark.parametrize("null", [True, False])
def test_group_clears_what_it_would_inherit(null: bool) -> None:
    inherited = {**GPUS, **DATA}
    cleared = {key: None if null else type(inherited[key])() for key in MARKS}
    template = str(of_group(cleared)["spec"]["template"])
    assert [mark for mark in MARKS.values() if mark in template] == []


each_gpu = pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.5gb",
        "amd.com/gpu",
        "amd.com/cpx_nps4",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
    ],
)


@each_gpu
def test_fewer_slots_than_gpus_are_refused(resource: str) -> None:
    done = helm_template({"worker": {"slots": 1, "resources": {"limits": {resource: 2}}}})
    assert f'worker.slots is 1 but worker.resources.limits["{resource}"] is 2' in done.stderr


@each_gpu
@pytest.mark.parametrize("count", [0, "0", None])
def test_slots_are_free_without_gpus(resource: str, count: object) -> None:
    assert render({"worker": {"slots": 1, "resources": {"limits": {resource: count}}}})


@each_gpu
def test_chart_and_hvdchart_take_no_other_device_for_a_gpu(resource: str) -> None:
    assert is_gpu(resource)
    assert not is_gpu(f"x.{resource}")
    assert render({"worker": {"slots": 1, "resources": {"limits": {f"x.{resource}": 2}}}})


def test_spares_are_further_pods_of_their_group_without_ranks() -> None:
    """An annotation tells them to `hvdchart status`, and the master may delete them."""
    with_spares = render(SPARES)
    sets = {item["metadata"]["name"]: item for item in of_kind(with_spares, "StatefulSet")}
    replicas = {name: item["spec"]["replicas"] for name, item in sets.items()}
    assert replicas == {"hvd-a": 5, "hvd-b": 1}
    notes = {name: item["metadata"].get("annotations") for name, item in sets.items()}
    assert notes == {"hvd-a": {"hvdchart/spares": "3"}, "hvd-b": None}
    groups = run_settings(with_spares)["groups"]
    assert [(group["number"], group["maximum"]) for group in groups] == [(2, 5), (1, 1)]
    rules = one(with_spares, "Role")["rules"]
    (deletable,) = (rule for rule in rules if rule["verbs"] == ["delete"])
    assert deletable["resourceNames"] == [*(f"hvd-a-{n}" for n in range(5)), "hvd-b-0"]


def test_minimum_is_that_of_each_group() -> None:
    """Without one, the run needs all of its workers."""
    groups: list[Values] = [{"name": "a"}, {"name": "b", "number": 1, "minimum": None}]
    manifests = render({"worker": {"number": 4, "minimum": 2}, "workerGroups": groups})
    sets = of_kind(manifests, "StatefulSet")
    assert [item["metadata"].get("annotations") for item in sets] == [
        {"hvdchart/minimum": "2"},
        None,
    ]
    run = run_settings(manifests)
    assert [group["minimum"] for group in run["groups"]] == [2, 1]
    assert run["shrink_after_seconds"] == 30


@pytest.mark.parametrize("worker", [{"minimum": None}, {"spares": None}, {"spares": 0}], ids=str)
def test_no_minimum_and_no_spares_are_as_without_the_key(worker: Values) -> None:
    assert render({"worker": worker}) == render({})
