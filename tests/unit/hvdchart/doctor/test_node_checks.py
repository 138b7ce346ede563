"""Whether nodes have the images and the GPUs of a run."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.chart_files import app_version
from hvdchart.doctor.needs import pod_needs
from hvdchart.doctor.node_checks import examine_gpus, examine_images

GPU: dict[str, Any] = {
    "worker": {"number": 3, "slots": 4, "resources": {"limits": {"nvidia.com/gpu": "4"}}}
}
NO_GPU: dict[str, Any] = {"worker": {"number": 4, "slots": 1}}


@pytest.mark.parametrize(
    ("image", "state"),
    [
        ({"repository": "python", "tag": "3.11"}, "unknown"),
        ({"repository": "loaded", "tag": "1"}, "ok"),
        ({"repository": "loaded"}, "unknown"),
        ({"repository": "tagless"}, "ok"),
        ({"repository": "host/a", "digest": "sha256:0"}, "ok"),
        ({"repository": "host/a", "tag": "1", "digest": "sha256:0"}, "ok"),
        ({"repository": "host/a", "tag": "1"}, "unknown"),
        # An image of another registry with the same name.
        ({"repository": "a", "digest": "sha256:0"}, "unknown"),
    ],
)
def test_nodes_can_have_the_image_or_not(image: dict[str, str], state: str) -> None:
    tagless = f"docker.io/library/tagless:{app_version()}"
    names = ["docker.io/library/loaded:1", "host/a@sha256:0", tagless]
    node = {"status": {"images": [{"names": names}]}}
    (finding,) = examine_images([node, node], {"image": image})
    assert finding.state == state


def test_each_image_of_a_run_is_examined_on_its_own_nodes() -> None:
    def node(pool: str, name: str) -> Any:
        images = [{"names": [f"docker.io/library/{name}"]}]
        return {"metadata": {"labels": {"pool": pool}}, "spec": {}, "status": {"images": images}}

    values = {
        "image": {"repository": "cpu", "tag": "1"},
        "worker": {"nodeSelector": {"pool": "cpu"}},
        "master": {"nodeSelector": {"pool": "cpu"}},
        "workerGroups": [
            {"name": "a"},
            {"name": "b", "nodeSelector": {"pool": "gpu"}, "image": {"repository": "gpu"}},
        ],
    }
    nodes = [node("cpu", "cpu:1"), node("gpu", "other:1")]
    findings = [*examine_images(nodes, values)]
    assert [finding.text for finding in findings] == [
        "all nodes have cpu:1",
        "1 of 1 nodes do not report gpu:1",
    ]


TAINT = {"key": "gpu", "value": "a", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("labels", "spec", "place", "is_admitted"),
    [
        ({"pool": "b", "zone": "z"}, {}, {"nodeSelector": {"pool": "b"}}, True),
        ({"pool": "own"}, {}, {"nodeSelector": {"pool": "b"}}, False),
        ({}, {"unschedulable": True}, {"tolerations": [{"operator": "Exists"}]}, False),
        ({}, {"taints": [TAINT]}, {}, False),
        ({}, {"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, {}, True),
        ({}, {"taints": [TAINT]}, {"tolerations": [TAINT]}, True),
        ({}, {"taints": [TAINT, {**TAINT, "key": "other"}]}, {"tolerations": [TAINT]}, False),
        ({}, {"taints": [{**TAINT, "value": "b"}]}, {"tolerations": [TAINT]}, False),
        ({}, {"taints": [{**TAINT, "effect": "NoExecute"}]}, {"tolerations": [TAINT]}, False),
        ({}, {"taints": [TAINT]}, {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, True),
        ({}, {"taints": [TAINT]}, {"tolerations": [{"operator": "Exists"}]}, True),
    ],
)
def test_only_nodes_that_admit_the_run_must_have_its_image(
    labels: dict[str, str], spec: dict[str, Any], place: dict[str, Any], is_admitted: bool
) -> None:
    values = {"image": {"repository": "loaded", "tag": "1"}, "worker": place, "master": place}
    images = [{"names": ["docker.io/library/loaded:1"]}]
    node = {"metadata": {"labels": labels}, "spec": spec, "status": {"images": images}}
    findings = [
        finding
        for others in ([], [{**node, "status": {}}])
        for finding in examine_images([node, *others], values)
    ]
    expected = ("all nodes have", "1 of 2 nodes") if is_admitted else ("no node that can be",) * 2
    for finding, start in zip(findings, expected, strict=True):
        assert finding.text.startswith(start)


NODES = [{"status": {"allocatable": {"nvidia.com/gpu": count, "cpu": "8"}}} for count in "48"]


@pytest.mark.parametrize(
    ("nodes", "values", "state", "says"),
    [
        (NODES, GPU, "ok", "3 pods of worker need 4 nvidia.com/gpu "),
        (NODES[:1], GPU, "problem", " 1"),
        (NODES, None, "ok", "12 nvidia.com/gpu on 2 nodes"),
        ([], NO_GPU, "ok", "none on 0 nodes"),
    ],
    ids=["enough", "too few", "without a spec", "none needed"],
)
def test_gpus_are_enough_when_each_worker_finds_a_node(
    nodes: list[Any], values: dict[str, Any] | None, state: str, says: str
) -> None:
    (finding,) = examine_gpus(nodes, pod_needs(values) if values else None)
    assert finding.state == state
    assert says in finding.text
