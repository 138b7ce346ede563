"""Whether a namespace has room for a run's pods."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.doctor.findings import Finding, report
from hvdchart.doctor.needs import claims, pod_needs, security_level
from hvdchart.doctor.room import (
    examine_claims,
    examine_classes,
    examine_gpus,
    examine_quotas,
    examine_security,
)
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import parse_spec
from hvdchart.values.check import checked_values
from hvdchart.values.merge import merge_values
from hvdchart.values.schema import default_values

VALUES: dict[str, Any] = {
    "worker": {"number": 4, "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}},
    "master": {"resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}},
}
GPU: dict[str, Any] = {"worker": {"number": 3, "resources": {"limits": {"nvidia.com/gpu": "4"}}}}


def quota(used: Any = None, **hard: str) -> Any:
    named = {name.replace("_", "."): value for name, value in hard.items()}
    return {
        "metadata": {"name": "q"}, "spec": {"hard": named},
        "status": {"hard": named, "used": used or {}},
    }  # fmt: skip


def limit_range(**limits: Any) -> Any:
    return {"metadata": {"name": "r"}, "spec": {"limits": [{"type": "Container", **limits}]}}


def quota_texts(quotas: list[Any], ranges: list[Any] | None = None) -> list[str]:
    findings = examine_quotas(quotas, ranges or [], pod_needs(VALUES))
    return [finding.text for finding in findings if finding.state == "problem"]


@pytest.mark.parametrize(
    ("hard", "problem"),
    [
        ({"requests_cpu": "8100m"}, ""),
        ({"requests_cpu": "8099m"}, "quota q leaves 8099m requests.cpu of 8100m needed"),
        ({"cpu": "8"}, "quota q leaves 8 cpu of 8100m needed"),
        ({"requests_memory": "17Gi"}, ""),
        ({"requests_memory": "16Gi"}, "quota q leaves 16Gi requests.memory of 16640Mi needed"),
        ({"pods": "5"}, ""),
        ({"pods": "4"}, "quota q leaves 4 pods of 5 needed"),
        ({"services": "0"}, ""),
        ({"limits_cpu": "100"}, "quota q requires limits.cpu, which worker, master does not set"),
    ],
)
def test_quotas_leave_room_or_not(hard: dict[str, str], problem: str) -> None:
    assert quota_texts([quota(**hard)]) == ([problem] if problem else [])


def test_what_others_use_is_not_left() -> None:
    problems = quota_texts([quota({"requests.cpu": "2"}, requests_cpu="10")])
    assert problems == ["quota q leaves 8 requests.cpu of 8100m needed"]


def test_what_is_over_its_quota_already_matters_to_those_who_need_it() -> None:
    assert quota_texts([quota({"services": "1"}, services="0")]) == []
    problems = quota_texts([quota({"pods": "9"}, pods="8")])
    assert problems == ["quota q leaves -1 pods of 5 needed"]


def test_a_default_of_the_namespace_meets_what_a_quota_demands() -> None:
    default = limit_range(default={"cpu": "4"})
    assert quota_texts([quota(limits_cpu="100")], [default]) == []


def test_a_default_request_is_no_limit() -> None:
    default = limit_range(defaultRequest={"cpu": "4"})
    (problem,) = quota_texts([quota(limits_cpu="100")], [default])
    assert problem.startswith("quota q requires limits.cpu")


def test_a_default_request_meets_what_a_quota_demands() -> None:
    values: dict[str, Any] = {"worker": {}, "master": {}}
    default = limit_range(defaultRequest={"cpu": "4"})
    states = [
        [each.state for each in examine_quotas([quota(cpu="100")], ranges, pod_needs(values))]
        for ranges in ([default], [])
    ]
    assert states == [["ok"], ["problem"]]


def test_a_quota_for_some_pods_only_is_not_counted() -> None:
    scoped = quota(pods="0")
    scoped["spec"]["scopes"] = ["BestEffort"]
    assert quota_texts([scoped]) == []


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"max": {"cpu": "2"}}, ""),
        ({"max": {"cpu": "1"}}, "limit range r allows 1 cpu; worker has more"),
        ({"min": {"memory": "1Gi"}}, "limit range r requires 1Gi memory; master has less"),
        ({"min": {"ephemeral-storage": "1Gi"}}, ""),
        ({"max": {"nvidia.com/gpu": "0"}}, ""),
    ],
)
def test_limit_ranges_admit_each_pod_or_not(limits: Any, problem: str) -> None:
    limit = limit_range(**limits)
    limit["spec"]["limits"].insert(0, {"type": "PersistentVolumeClaim", "max": {"cpu": "0"}})
    assert quota_texts([], [limit]) == ([problem] if problem else [])


def test_without_a_spec_quotas_are_named() -> None:
    (finding,) = examine_quotas([quota(pods="0")], [], None)
    assert (finding.state, finding.text) == ("ok", "q")


@pytest.mark.parametrize(
    ("enforced", "more", "problem"),
    [
        ("restricted", {}, ""),
        ("restricted", {"podSecurityContext": {"runAsUser": 0}}, "needs baseline"),
        ("restricted", {"podSecurityContext": {"runAsNonRoot": False}}, "needs baseline"),
        ("restricted", {"securityContext": {"allowPrivilegeEscalation": True}}, "needs baseline"),
        ("baseline", {"podSecurityContext": {"runAsUser": 0}}, ""),
        ("baseline", {"volumes": [{"name": "d", "hostPath": {}}]}, "volume d needs privileged"),
        ("baseline", {"hostNetwork": True}, "hostNetwork needs privileged"),
        ("baseline", {"worker": {"capabilities": ["IPC_LOCK"]}}, "capabilities needs privileged"),
        ("privileged", {"hostNetwork": True}, ""),
        (None, {"hostNetwork": True}, ""),
    ],
)  # fmt: skip
def test_pod_security_admits_the_pods_or_not(enforced: str, more: Any, problem: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": enforced} if enforced else {}
    finding = examine_security({"metadata": {"labels": labels}}, *security_level(more))
    assert finding.state == ("problem" if problem else "ok")
    assert problem in finding.text


def test_the_charts_own_values_suit_the_strictest_level() -> None:
    assert security_level(default_values()) == ("restricted", "")


def claim(phase: str = "Bound", mode: str = "ReadWriteMany", storage_class: str = "slow") -> Any:
    return {
        "spec": {"accessModes": [mode], "storageClassName": storage_class},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("found", "workers", "problem"),
    [
        (claim(), 4, ""),
        (claim(mode="ReadOnlyMany"), 4, ""),
        (None, 1, "it does not exist"),
        (claim("Pending"), 1, "it is Pending: no volume is bound to it"),
        (claim("Pending", storage_class="late"), 1, ""),
        (claim(mode="ReadWriteOnce"), 1, ""),
        (claim(mode="ReadWriteOnce"), 2, "2 workers mount it, and it allows ReadWriteOnce"),
    ],
)
def test_claims_can_be_mounted_or_not(found: Any, workers: int, problem: str) -> None:
    classes = [{"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}]
    (finding,) = examine_claims({"data": found}, classes, workers)
    assert (finding.state, problem in finding.text) == ("problem" if problem else "ok", True)


def test_each_claim_has_its_finding() -> None:
    findings = examine_claims({"data": None, "out": claim()}, None, 4)
    assert [(each.subject, each.state) for each in findings] == [
        ("claim data", "problem"), ("claim out", "ok"),
    ]  # fmt: skip


def test_claims_are_those_of_all_pods() -> None:
    volume = {"name": "d", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}
    own = {"name": "o", "persistentVolumeClaim": {"claimName": "out"}}
    values = {
        "volumes": [volume, {"name": "e", "emptyDir": {}}],
        "workerGroups": [{"volumes": [own]}],
    }
    assert claims(values) == {"data": False, "out": True}


def test_gpus_are_enough_when_each_worker_finds_a_node() -> None:
    nodes = [{"status": {"allocatable": {"nvidia.com/gpu": count, "cpu": "8"}}} for count in "48"]
    (finding,) = examine_gpus(nodes, pod_needs(GPU))
    assert (finding.state, finding.text) == (
        "ok", "3 pods of worker need 4 nvidia.com/gpu each; nodes have room for 3",
    )  # fmt: skip
    (finding,) = examine_gpus(nodes[:1], pod_needs(GPU))
    assert finding.state == "problem"
    (finding,) = examine_gpus(nodes, None)
    assert finding.text == "12 nvidia.com/gpu on 2 nodes"
    none = {"worker": {"number": 3, "resources": {"limits": {"nvidia.com/gpu": "0"}}}}
    (finding,) = examine_gpus([], pod_needs(none))
    assert finding.state == "ok"
    (finding,) = examine_gpus([], pod_needs(VALUES))
    assert (finding.state, finding.text) == ("ok", "none on 0 nodes")


def test_a_default_class_serves_new_claims() -> None:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    classes: list[Any] = [
        {"metadata": {"name": "a"}},
        {"metadata": {"name": "b", "annotations": default}},
    ]
    assert examine_classes(classes).text == "a, b; default: b"
    assert examine_classes(classes[:1]).state == "unknown"
    assert examine_classes(classes[:1]).text == "no default StorageClass among: a"
    assert examine_classes([]).text == "no default StorageClass among: none"


def test_needs_are_read_from_the_values_of_a_spec() -> None:
    spec = parse_spec(
        b"apiVersion: hvdchart/v1\nname: r\nimage: {repository: a}\n"
        b"train: {command: [a]}\nnodes:\n"
        b"- {name: a, count: 2, coresPerSocket: 4, memory: 8Gi}\n"
        b"- {name: b, count: 3, coresPerSocket: 4, memory: 8Gi, gpus: 2}\n"
    )
    values = merge_values(default_values(), checked_values(make_plan(spec)))
    assert [(pod.name, pod.number, dict(pod.gpus)) for pod in pod_needs(values)] == [
        ("a", 2, {}), ("b", 3, {"nvidia.com/gpu": 2}), ("master", 1, {}),
    ]  # fmt: skip


def test_values_without_numbers_need_a_worker_and_a_master() -> None:
    assert [(pod.name, pod.number) for pod in pod_needs({})] == [("worker", 1), ("master", 1)]


def test_spares_need_what_other_workers_need() -> None:
    groups = [{"name": "a"}, {"name": "b", "spares": None}]
    values = {"worker": {"number": 2, "spares": 1}, "workerGroups": groups}
    assert [(pod.name, pod.number) for pod in pod_needs(values)] == [
        ("a", 3), ("b", 2), ("master", 1),
    ]  # fmt: skip


def test_the_report_has_a_line_for_each_subject_and_the_fix_below() -> None:
    text = report([Finding("DNS", "ok", "2 servers"), Finding("quotas", "problem", "full", "ask")])
    assert text.splitlines() == [
        "ok       DNS     2 servers", "PROBLEM  quotas  full", "                 -> ask",
    ]  # fmt: skip
