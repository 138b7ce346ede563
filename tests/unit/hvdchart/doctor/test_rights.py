"""The rights that deploying a run needs."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

from hvdchart.chart_files import chart_dir
from hvdchart.doctor.rights import TO_DEPLOY, Right, needed_rights
from tests.support.role import role_rules


def test_the_rights_of_the_masters_role_are_needed_to_create_it() -> None:
    """RBAC lets nobody grant what they do not have."""
    rules = role_rules()
    assert len(rules) >= 8
    granted = {
        Right(*right)
        for rule in rules
        for right in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }
    assert granted <= set(needed_rights(TO_DEPLOY, None))


@pytest.mark.parametrize(
    ("changes", "is_needed"),
    [
        ({}, True),
        ({"networkPolicy": {"enabled": False}}, False),
        ({"hostNetwork": True}, False),
        ({"hostNetwork": True, "networkPolicy": {"enabled": True}}, True),
        ({"queueName": "gpus"}, False),
        ({"queueName": "gpus", "gang": "Volcano"}, True),
    ],
)
def test_right_to_patch_pods_is_needed_where_the_masters_role_has_it(
    changes: dict[str, Any], is_needed: bool
) -> None:
    needed = set(needed_rights(TO_DEPLOY, changes))
    assert (Right("", "pods", "patch") in needed) is is_needed


@pytest.mark.parametrize(
    "values", [{"rbac": {"create": False}}, {"serviceAccount": {"create": False}}]
)
def test_rights_on_roles_are_needed_only_where_the_chart_creates_one(
    values: dict[str, Any],
) -> None:
    """With the ClusterRole `edit`, people may create everything else."""
    resources = {right.resource for right in needed_rights(TO_DEPLOY, values)}
    assert "statefulsets" in resources
    assert not resources & {"roles", "rolebindings", "endpointslices"}


def test_each_kind_of_object_that_the_chart_creates_is_among_the_rights() -> None:
    """By default; the other kinds are those that a spec enables."""
    kinds = {
        kind.lower()
        for file in (chart_dir() / "templates").rglob("*.yaml")
        for kind in re.findall(r"^kind: (\w+)$", file.read_text(), re.MULTILINE)
    }
    values = {
        "tensorboard": {"enabled": True},
        "podDisruptionBudget": {"enabled": True},
        "metrics": {"podMonitor": True, "rules": True},
    }
    resources = {right.resource for right in needed_rights(TO_DEPLOY, values)}
    plurals = {
        kind.removesuffix("y") + "ies" if kind.endswith("y") else f"{kind}s" for kind in kinds
    }
    # Of a gang scheduler, whose rights depend on which it is.
    assert plurals - resources <= {"podgroups"}
