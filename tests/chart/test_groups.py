"""Worker groups: what they inherit from `worker`, and how they clear it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.render import Manifest, Values, of_kind, one, pod_spec, refusal, render

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


def of_group(group: Values, **values: Any) -> Manifest:
    """Return the StatefulSet of one group that inherits GPUS."""
    groups = {"workerGroups": [{"name": "cpu", **group}], "worker": GPUS}
    return one(render({**groups, **values}), "StatefulSet")


@pytest.mark.parametrize("empty", ["null", "empty"])
@pytest.mark.parametrize(
    "key",
    [
        *("nodeSelector", "tolerations", "runtimeClassName", "topologySpreadConstraints"),
        *("podLabels", "podAnnotations", "resources", "affinity", "env"),
    ],
)
def test_group_clears_what_it_would_inherit(key: str, empty: str) -> None:
    value = None if empty == "null" else type(GPUS[key])()
    with_all, without = of_group({}), of_group({key: value})

    def shown(manifest: Manifest) -> str:
        return str(manifest["spec"]["template"])

    marks = {"podLabels": "seeing", "podAnnotations": "note", "affinity": "nodeAffinity"}
    marks |= {"resources": "nvidia.com/gpu", "env": "NCCL_DEBUG"}
    mark = marks.get(key, key)
    assert mark in shown(with_all)
    assert mark not in shown(without)


def test_null_clears_one_key_of_a_map() -> None:
    limits = {"limits": {"nvidia.com/gpu": None}}
    group = of_group({"resources": limits, "slots": 5, "nodeSelector": {"pool": None, "a": "b"}})
    spec = pod_spec(group)
    assert spec["containers"][0]["resources"] == {
        "limits": {"memory": "8Gi"},
        "requests": {"cpu": 4},
    }
    assert spec["nodeSelector"] == {"a": "b"}
    assert pod_spec(of_group({"image": {"tag": None}}))["containers"][0]["image"].endswith("2.21.0")


@pytest.mark.parametrize("none", [None, 0, "0"])
def test_gpu_limit_of_null_or_zero_is_no_gpu(none: int | str | None) -> None:
    group = of_group({"slots": 5, "resources": {"limits": {"nvidia.com/gpu": none}}})
    limits = pod_spec(group)["containers"][0]["resources"]["limits"]
    assert int(limits.get("nvidia.com/gpu", 0)) == 0
    worker = {"slots": 3, "resources": {"limits": {"nvidia.com/gpu": none}}}
    assert of_kind(render({"worker": worker}), "StatefulSet")


def test_group_clears_the_volumes_of_the_release() -> None:
    values: Values = {
        "volumes": [{"name": "data", "emptyDir": {}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    mark = "'name': 'data'"
    assert mark not in str(pod_spec(of_group({"volumes": None, "volumeMounts": None}, **values)))
    assert mark not in str(pod_spec(of_group({"volumes": [], "volumeMounts": []}, **values)))
    assert mark in str(pod_spec(of_group({}, **values)))


def test_volume_of_a_group_replaces_one_of_the_same_name() -> None:
    own = {"name": "data", "hostPath": {"path": "/fast"}}
    spec = pod_spec(of_group({"volumes": [own]}, volumes=[{"name": "data", "emptyDir": {}}]))
    assert [volume for volume in spec["volumes"] if volume["name"] == "data"] == [own]


def test_group_must_have_a_number_and_slots() -> None:
    """These have no meaning without a value, so that null cannot clear them."""
    for key in ("number", "slots"):
        message = refusal({"workerGroups": [{"name": "a", key: None}]})
        assert key in message
