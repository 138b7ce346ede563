"""Which rights are missing, from the rules that the API server tells."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from hvdchart.chart_files import chart_dir
from hvdchart.doctor.rights import PURPOSES, Right, examine_rights, is_granted, needed_rights

ALL = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


def rule(group: str, resources: list[str], verbs: list[str], **more: Any) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs, **more}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (ALL, True),
        (rule("", ["pods/exec"], ["create"]), True),
        (rule("", ["*/exec"], ["*"]), True),
        (rule("*", ["*"], ["create"]), True),
        (rule("", ["pods"], ["*"]), False),
        (rule("apps", ["pods/exec"], ["create"]), False),
        (rule("", ["pods/exec"], ["get"]), False),
        (rule("", ["pods/exec"], ["create"], resourceNames=["a"]), False),
        ({}, False),
    ],
)
def test_a_rule_grants_a_right_on_all_objects_or_not(given: dict[str, Any], expected: bool) -> None:
    assert is_granted(Right("", "pods/exec", "create"), [given]) == expected


def test_an_administrator_lacks_nothing() -> None:
    findings = list(examine_rights("team", [ALL], None))
    assert [finding.subject for finding in findings] == list(PURPOSES)
    assert {finding.state for finding in findings} == {"ok"}


def test_missing_rights_are_listed_by_resource_with_the_fix() -> None:
    rules = [
        {**ALL, "apiGroups": [""]},
        {**ALL, "apiGroups": ["apps", "batch", "discovery.k8s.io"]},
    ]
    deploy, follow, enter = examine_rights("team", rules, None)
    assert deploy.state == "problem"
    assert deploy.text == (
        "missing in namespace team: get, create, patch, delete roles.rbac.authorization.k8s.io; "
        "get, create, patch, delete rolebindings.rbac.authorization.k8s.io; "
        "get, create, patch, delete networkpolicies.networking.k8s.io"
    )
    assert "kubectl create rolebinding NAME -n team --clusterrole=admin" in deploy.fix
    assert (follow.state, enter.state) == ("ok", "ok")


def test_without_rights_to_enter_pods_a_run_works() -> None:
    rules = [rule("*", ["*"], ["get", "list", "watch", "create", "patch", "delete", "update"])]
    rules = [{**rules[0], "resources": [r for _, r, _ in _all_rights() if "/exec" not in r]}]
    states = {finding.subject: finding.state for finding in examine_rights("team", rules, None)}
    assert states["rights to enter pods"] == "unknown"
    assert states["rights to deploy"] == "ok"


def test_the_server_is_asked_where_rules_are_incomplete() -> None:
    asked: list[Right] = []

    def may(right: Right) -> bool:
        asked.append(right)
        return right.verb != "patch"

    rules = [{**ALL, "apiGroups": ["", "apps", "batch", "discovery.k8s.io"]}]
    deploy, *_ = examine_rights("team", rules, None, may)
    assert {right.group for right in asked} == {
        "rbac.authorization.k8s.io", "networking.k8s.io",
    }  # fmt: skip
    assert deploy.text.startswith("missing in namespace team: patch roles.rbac")


def test_what_a_spec_enables_needs_further_rights() -> None:
    values = {
        "tensorboard": {"enabled": True}, "podDisruptionBudget": {"enabled": True},
        "metrics": {"enabled": True, "podMonitor": True},
    }  # fmt: skip
    more = set(needed_rights("rights to deploy", values)) - set(
        needed_rights("rights to deploy", {})
    )
    assert {right.resource for right in more} == {
        "deployments", "poddisruptionbudgets", "podmonitors",
    }  # fmt: skip


def test_the_rights_of_the_masters_role_are_needed_to_create_it() -> None:
    """RBAC lets nobody grant what they do not have."""
    text = (chart_dir() / "templates" / "role.yaml").read_text()
    lines = [line for line in text.splitlines() if "{{" not in line and "resourceNames" not in line]
    lines = [line for line in lines if not re.fullmatch(r" +- [^{]*-worker.*", line)]
    rules = YAML(typ="safe").load("\n".join(lines))["rules"]
    assert len(rules) >= 8
    needed = set(needed_rights("rights to deploy", None))
    for granted in rules:
        for group in granted["apiGroups"]:
            for resource in granted["resources"]:
                for verb in granted["verbs"]:
                    assert Right(group, resource, verb) in needed


def test_each_kind_of_object_that_the_chart_creates_is_among_the_rights() -> None:
    """By default; the other kinds are those that a spec enables."""
    templates = Path(chart_dir() / "templates").glob("*.yaml")
    kinds = {
        kind.lower()
        for file in templates
        for kind in re.findall(r"^kind: (\w+)$", file.read_text(), re.MULTILINE)
    }
    values = {
        "tensorboard": {"enabled": True}, "podDisruptionBudget": {"enabled": True},
        "metrics": {"podMonitor": True},
    }  # fmt: skip
    resources = {right.resource for right in needed_rights("rights to deploy", values)}
    plurals = {
        kind.removesuffix("y") + "ies" if kind.endswith("y") else f"{kind}s" for kind in kinds
    }
    # Of a gang scheduler, whose rights depend on which it is.
    assert plurals - resources <= {"podgroups"}


def _all_rights() -> list[Right]:
    return [right for purpose in PURPOSES for right in needed_rights(purpose, None)]
