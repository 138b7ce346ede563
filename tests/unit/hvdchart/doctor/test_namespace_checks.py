"""Whether a namespace and its nodes have room for the pods of a run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hvdchart.chart_files import app_version
from hvdchart.doctor.namespace_checks import (
    examine_claims,
    examine_gpus,
    examine_images,
    examine_quotas,
)
from hvdchart.doctor.needs import pod_needs

VALUES: dict[str, Any] = {
    "worker": {
        "number": 4,
        "slots": 1,
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}},
    },
    "master": {"resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}},
}
GPU: dict[str, Any] = {
    "worker": {"number": 3, "slots": 4, "resources": {"limits": {"nvidia.com/gpu": "4"}}}
}


@pytest.mark.parametrize(
    ("hard", "limits", "problem"),
    [
        ({"requests.cpu": "8100m"}, {}, ""),
        ({"requests.cpu": "8099m"}, {}, "quota q leaves 8099m requests.cpu of 8100m needed"),
        ({"cpu": "8"}, {}, "quota q leaves 8 cpu of 8100m needed"),
        ({"requests.memory": "16Gi"}, {}, "quota q leaves 16Gi requests.memory of 16640Mi needed"),
        ({"pods": "4"}, {}, "quota q leaves 4 pods of 5 needed"),
        (
            {"limits.cpu": "100"},
            {},
            "quota q requires limits.cpu, which worker, master does not set",
        ),
        ({}, {"max": {"cpu": "2"}}, ""),
        ({}, {"max": {"cpu": "1"}}, "limit range r allows 1 cpu; worker has more"),
        ({}, {"min": {"memory": "1Gi"}}, "limit range r requires 1Gi memory; master has less"),
    ],
)
def test_quotas_and_limit_ranges_admit_the_pods_or_not(
    hard: dict[str, str], limits: dict[str, Any], problem: str
) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard}}
    claims = {"type": "PersistentVolumeClaim", "max": {"cpu": "0"}}
    spec = {"limits": [claims, {"type": "Container", **limits}]}
    ranges = [{"metadata": {"name": "r"}, "spec": spec}]
    findings = examine_quotas([quota], ranges, pod_needs(VALUES))
    problems = [finding.text for finding in findings if finding.state == "problem"]
    assert problems == ([problem] if problem else [])


MASTER_LIMITED = {"requests": {"cpu": "2"}, "limits": {"memory": "8Gi"}}


@pytest.mark.parametrize(
    ("hard", "limits", "resources", "problem", "remedy"),
    [
        (
            {"limits.memory": "100Gi"},
            {},
            MASTER_LIMITED,
            r"\bq .*\blimits\.memory.*\bmaster\b",
            "`values.master.resources.limits.memory`",
        ),
        (
            {},
            {"default": {"memory": "64Mi"}},
            {},
            r"\br limits memory of worker to 64Mi, .*\b400Mi$",
            "`values.worker.resources.limits.memory`",
        ),
        (
            {},
            {"default": {"memory": "64Mi"}},
            MASTER_LIMITED,
            r"\br limits memory of master to 64Mi, .*\b256Mi$",
            "`values.master.resources.limits.memory`",
        ),
        (
            {"limits.memory": "3Gi"},
            {"default": {"memory": "1Gi"}},
            {},
            r"\bq .*\b3Gi limits\.memory of 5Gi\b",
            "workers",
        ),
        (
            {},
            {"min": {"memory": "1Gi"}},
            {"limits": {"memory": "2Gi"}},
            r"\br .*\b1Gi memory; master\b",
            "`values.master.resources`",
        ),
    ],
)
def test_remedy_is_that_of_the_problem(
    hard: dict[str, str],
    limits: dict[str, Any],
    resources: dict[str, Any],
    problem: str,
    remedy: str,
) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard}}
    ranges = [{"metadata": {"name": "r"}, "spec": {"limits": [{"type": "Container", **limits}]}}]
    values = {**VALUES, "worker": {"number": 4, "slots": 1, "resources": resources}}
    findings = [*examine_quotas([quota], ranges, pod_needs(values))]
    assert any(
        re.search(problem, finding.text) and remedy in finding.remedy for finding in findings
    )


def claim(phase: str = "Bound", mode: str = "ReadWriteMany", storage_class: str = "slow") -> Any:
    return {
        "spec": {"accessModes": [mode], "storageClassName": storage_class},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("claim_on_server", "workers", "problem"),
    [
        (claim(), 4, ""),
        (None, 1, "does not exist"),
        (claim("Pending"), 1, "Pending"),
        (claim("Pending", storage_class="late"), 1, ""),
        (claim(mode="ReadWriteOnce"), 1, ""),
        (claim(mode="ReadWriteOnce"), 2, "ReadWriteOnce"),
    ],
)
def test_claims_can_be_mounted_or_not(claim_on_server: Any, workers: int, problem: str) -> None:
    classes = [{"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}]
    (finding,) = examine_claims({"data": claim_on_server}, classes, workers)
    assert finding.state == ("problem" if problem else "ok")
    assert problem in finding.text


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
        ([], VALUES, "ok", "none on 0 nodes"),
    ],
    ids=["enough", "too few", "without a spec", "none needed"],
)
def test_gpus_are_enough_when_each_worker_finds_a_node(
    nodes: list[Any], values: dict[str, Any] | None, state: str, says: str
) -> None:
    (finding,) = examine_gpus(nodes, pod_needs(values) if values else None)
    assert finding.state == state
    assert says in finding.text
