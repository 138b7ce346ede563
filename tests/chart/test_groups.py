"""Worker groups: what they inherit from `worker`, how they clear it, and their spares."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.chart_files import is_gpu
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
)
from tests.chart.test_objects import GROUPS

GPUS: Values = {
    "slots": 2,
    "resources": {"limits": {"nvidia.com/gpu": 2, "memory": "8Gi"}, "requests": {"cpu": 4}},
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"a": {}}},
    "runtimeClassName": "nvidia",
    "podLabels": {"team": "seeing"},
    "podAnnotations": {"note": "gpu"},
    "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
    "image": {"tag": "cuda"},
    "topologySpreadConstraints": [{"topologyKey": "zone"}],
}
# What the pod template shows of each key that a group can clear.
MARKS = {
    "nodeSelector": "nodeSelector",
    "tolerations": "tolerations",
    "runtimeClassName": "runtimeClassName",
    "topologySpreadConstraints": "topologySpreadConstraints",
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


def test_worker_groups_inherit_from_worker() -> None:
    cpu, gpu = of_kind(render(GROUPS), "StatefulSet")
    assert (cpu["metadata"]["name"], cpu["spec"]["replicas"]) == ("hvd-cpu", 3)
    assert (gpu["metadata"]["name"], gpu["spec"]["replicas"]) == ("hvd-gpu", 2)
    names = [entry["name"] for entry in pod_spec(gpu)["containers"][0]["env"]]
    assert names[-2:] == ["A", "B"]
    assert pod_spec(cpu)["containers"][0]["image"].endswith(":0.28.1-tf2.21.0")
    assert pod_spec(gpu)["containers"][0]["image"] == f"{IMAGE}:cuda"
    template = str(of_group({})["spec"]["template"])
    assert [mark for mark in MARKS.values() if mark not in template] == []


@pytest.mark.parametrize("null", [True, False])
def test_group_clears_what_it_would_inherit(null: bool) -> None:
    inherited = {**GPUS, **DATA}
    cleared = {key: None if null else type(inherited[key])() for key in MARKS}
    template = str(of_group(cleared)["spec"]["template"])
    assert [mark for mark in MARKS.values() if mark in template] == []


@pytest.mark.parametrize(
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
def test_chart_and_hvdchart_want_as_many_slots_as_gpus(resource: str) -> None:
    assert is_gpu(resource)
    done = helm_template({"worker": {"slots": 1, "resources": {"limits": {resource: 2}}}})
    assert f'slots is 1 but resources.limits["{resource}"] is 2' in done.stderr
    other = f"x.{resource}"
    assert not is_gpu(other)
    for limits in ({other: 2}, {resource: 0}, {resource: "0"}, {resource: None}):
        assert render({"worker": {"slots": 1, "resources": {"limits": limits}}})


# One group inherits the spares, one has none.
SPARES: Values = {
    "worker": {"number": 2, "slots": 2, "spares": 3, "resources": {"requests": {"cpu": 1}}},
    "workerGroups": [{"name": "a"}, {"name": "b", "number": 1, "spares": 0}],
}


def test_spares_are_pods_without_ranks() -> None:
    manifests = render(SPARES)
    sets = {item["metadata"]["name"]: item for item in of_kind(manifests, "StatefulSet")}
    assert {name: item["spec"]["replicas"] for name, item in sets.items()} == {
        "hvd-a": 5,
        "hvd-b": 1,
    }
    of_a, of_b = (sets[name]["metadata"].get("annotations") for name in ("hvd-a", "hvd-b"))
    assert (of_a, of_b) == ({"horovod/spares": "3"}, None), "hvdchart status reads it"
    groups = run_settings(manifests)["groups"]
    assert [(group["number"], group["maximum"]) for group in groups] == [(2, 5), (1, 1)]
    (deletable,) = (r for r in one(manifests, "Role")["rules"] if r["verbs"] == ["delete"])
    assert deletable["resourceNames"] == [*(f"hvd-a-{n}" for n in range(5)), "hvd-b-0"]
    for nothing in (None, 0):
        assert render({"worker": {"spares": nothing}}) == render({}), "as without the key"
