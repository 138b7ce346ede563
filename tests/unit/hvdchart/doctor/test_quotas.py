"""Whether quotas and limit ranges admit the pods of a run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hvdchart.doctor.needs import pod_needs
from hvdchart.doctor.quotas import examine_quotas

VALUES: dict[str, Any] = {
    "worker": {
        "number": 4,
        "slots": 1,
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}},
    },
    "master": {"resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}},
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
