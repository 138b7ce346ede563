"""The rights of the pods, and where the SSH keys are."""

from __future__ import annotations

import base64
import json

import pytest

from tests.chart.render import one, parse_manifests, pod_spec, render, render_uncached, run_settings
from tests.chart.test_objects import GROUPS


def test_role_grants_only_the_verbs_in_use() -> None:
    rules = one(render(GROUPS), "Role")["rules"]
    allowed = {
        (resource, verb): rule.get("resourceNames")
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    pods = ["hvd-cpu-0", "hvd-cpu-1", "hvd-cpu-2", "hvd-gpu-0", "hvd-gpu-1"]
    assert allowed == {
        ("endpointslices", "list"): None,
        ("endpointslices", "watch"): None,
        ("pods", "list"): None,
        ("pods", "delete"): pods,
        ("events", "create"): None,
        ("events", "list"): None,
        ("jobs", "get"): [one(render(GROUPS), "Job")["metadata"]["name"]],
        ("jobs", "watch"): [one(render(GROUPS), "Job")["metadata"]["name"]],
        ("statefulsets/scale", "get"): ["hvd-cpu", "hvd-gpu"],
        ("statefulsets/scale", "patch"): ["hvd-cpu", "hvd-gpu"],
        ("configmaps", "get"): ["hvd-run"],
        ("configmaps", "patch"): ["hvd-run"],
        ("secrets", "get"): ["hvd-ssh"],
        ("secrets", "patch"): ["hvd-ssh"],
    }


def test_private_keys_are_in_the_secret_only() -> None:
    # Without a service account, the master could not make them.
    manifests = render({"serviceAccount": {"create": False}})
    keys = one(manifests, "Secret")["data"]
    assert set(keys) == {"user-key", "host-key"}
    elsewhere = json.dumps([item for item in manifests if item["kind"] != "Secret"])
    for key in keys.values():
        begin, *body, _ = base64.b64decode(key).decode().splitlines()
        assert begin == "-----BEGIN EC PRIVATE KEY-----"
        assert [line for line in (key, *body) if line in elsewhere] == []
    # These are files in the pods.
    assert "secretKeyRef" not in elsewhere


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_rendering_without_the_cluster_makes_no_keys_and_is_repeatable(helm: str) -> None:
    """A GitOps tool compares each rendering with the last one. The first master makes the keys."""
    texts = {render_uncached({}, helm) for _ in range(2)}
    assert len(texts) == 1
    manifests = parse_manifests(texts.pop())
    assert "data" not in one(manifests, "Secret")
    secret = one(manifests, "Secret")["metadata"]["name"]
    volumes = {
        kind: next(v["secret"] for v in pod_spec(one(manifests, kind))["volumes"] if "secret" in v)
        for kind in ("StatefulSet", "Job")
    }
    # Workers wait for both keys; the master must not.
    for volume in volumes.values():
        assert volume["secretName"] == secret
        assert [item["key"] for item in volume["items"]] == ["user-key", "host-key"]
    assert "optional" not in volumes["StatefulSet"]
    assert volumes["Job"]["optional"] is True
    environment = pod_spec(one(manifests, "Job"))["containers"][0]["env"]
    assert {"name": "HVD_SSH_SECRET", "value": secret} in environment


def test_role_has_no_right_to_a_secret_of_the_user() -> None:
    rules = one(render({"ssh": {"existingSecret": "mine"}}), "Role")["rules"]
    assert [rule for rule in rules if "secrets" in rule["resources"]] == []


def test_workers_have_no_service_account_token() -> None:
    manifests = render()
    assert pod_spec(one(manifests, "StatefulSet"))["automountServiceAccountToken"] is False
    assert pod_spec(one(manifests, "Job"))["automountServiceAccountToken"] is True
    without = render({"serviceAccount": {"create": False}})
    assert pod_spec(one(without, "Job"))["automountServiceAccountToken"] is False
    assert run_settings(without)["api"] is False
