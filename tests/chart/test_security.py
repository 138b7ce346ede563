"""The rendered manifests keep the promises of docs/security.md about pods, rights and keys."""

from __future__ import annotations

import base64
import json
import re
from functools import cache

import pytest

from tests.chart.render import (
    CHART,
    Manifest,
    Values,
    containers_of,
    main_container,
    of_kind,
    one,
    parse_manifests,
    pod_spec,
    pod_specs,
    render,
    render_uncached,
    run_settings,
    variables,
)

# Values with which the chart renders every pod and every container that it has.
EVERY_POD: Values = {
    "podSecurityContext": {"runAsUser": None},
    "ssh": {"image": {"repository": "team/ssh", "tag": "10.0"}},
    "tensorboard": {"enabled": True, "logDir": "/data/logs"},
    "staging": {"command": ["true"], "path": "/data/set"},
    "results": {"command": ["true"], "path": "/data"},
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
}
PAGE = CHART.parents[1] / "docs" / "security.md"


@cache
def pods() -> dict[str, Manifest]:
    """Return the pod spec of each workload, by the kind of the workload."""
    return {kind.split()[0]: spec for kind, spec in pod_specs(render(EVERY_POD)).items()}


def test_pods_refuse_root_and_share_nothing_with_their_node() -> None:
    for kind, spec in pods().items():
        assert spec["securityContext"]["runAsNonRoot"] is True, kind
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, kind
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}, kind
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume], kind
    assert pod_spec(one(render(), "Job"))["securityContext"]["runAsUser"] == 1000


def test_containers_have_no_capability_and_write_to_volumes_only() -> None:
    writable = {}
    for container in containers_of(render(EVERY_POD)):
        context = container["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}, container["name"]
        assert context["allowPrivilegeEscalation"] is False, container["name"]
        assert not context.get("privileged"), container["name"]
        assert context["readOnlyRootFilesystem"] is True, container["name"]
        mounts = container["volumeMounts"]
        writable[container["name"]] = {m["mountPath"] for m in mounts if not m.get("readOnly")}
    assert writable == {
        "master": {"/tmp", "/horovod/generated", "/data"},
        "openssh": {"/horovod/openssh"},
        "passwd": {"/horovod/generated"},
        # Its directory of what the master has in /horovod/generated.
        "results": {"/tmp", "/horovod/results", "/data"},
        "staging": {"/tmp", "/data"},
        "tensorboard": {"/tmp"},
        "worker": {"/tmp", "/dev/shm", "/horovod/generated", "/run/sshd", "/data"},
    }
    volumes = {volume["name"]: volume for volume in pods()["StatefulSet"]["volumes"]}
    assert volumes["generated"]["emptyDir"]["medium"] == "Memory"


def test_strangers_commands_share_no_writable_folder_of_the_charts() -> None:
    """The master's /tmp has the code that it runs, and /horovod/generated has the keys."""
    shared = {
        (container["name"], mount["name"], mount.get("subPath"))
        for container in containers_of(render(EVERY_POD))
        for mount in container["volumeMounts"]
        if container["name"] in ("staging", "results") and mount["mountPath"] != "/data"
        if not mount.get("readOnly")
    }
    exchange = ("results", "generated", "results")
    assert shared == {("staging", "tmp", "staging"), ("results", "tmp", "results"), exchange}


def test_only_the_master_and_helm_test_have_a_token() -> None:
    tokens = {kind: spec["automountServiceAccountToken"] for kind, spec in pods().items()}
    assert tokens == {"StatefulSet": False, "Job": True, "Deployment": False, "Pod": True}
    assert one(render(), "ServiceAccount")["automountServiceAccountToken"] is False
    assert {spec["enableServiceLinks"] for spec in pods().values()} == {False}
    # Kubernetes mounts the token where a container mounts nothing.
    hidden = "/var/run/secrets/kubernetes.io/serviceaccount"
    hiding = {
        c["name"]
        for c in containers_of(render(EVERY_POD))
        for m in c["volumeMounts"]
        if m["mountPath"] == hidden
    }
    assert hiding == {"results"}, "the user's command gets none of the master's rights"
    without = render({"serviceAccount": {"create": False}})
    assert pod_spec(one(without, "Job"))["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod_spec(one(without, "Job"))
    assert run_settings(without)["api"] is False


def test_role_grants_only_the_verbs_in_use_as_the_page_says() -> None:
    groups = [{"name": "cpu", "number": 3}, {"name": "gpu", "number": 2}]
    manifests = render({"workerGroups": groups})
    rules = one(manifests, "Role")["rules"]
    granted = {
        (resource, ", ".join(rule["verbs"])): rule.get("resourceNames")
        for rule in rules
        for resource in rule["resources"]
    }
    section = PAGE.read_text().partition("\n## Rights of the master\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z/]+)`[^|]*\| ([a-z, ]+) \|", section, re.MULTILINE)
    assert set(rows) == set(granted)
    assert granted == {
        ("endpointslices", "list, watch"): None,
        ("pods", "list"): None,
        ("pods", "delete"): [*(f"hvd-cpu-{n}" for n in range(3)), "hvd-gpu-0", "hvd-gpu-1"],
        ("events", "create, list"): None,
        ("jobs", "get"): [one(manifests, "Job")["metadata"]["name"]],
        ("statefulsets/scale", "get, patch"): ["hvd-cpu", "hvd-gpu"],
        ("configmaps", "get, patch"): ["hvd-run"],
        ("secrets", "get, patch"): ["hvd-ssh"],
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
    texts = {render_uncached({"ssh": {"generation": 2}}, helm) for _ in range(2)}
    assert len(texts) == 1
    manifests = parse_manifests(texts.pop())
    assert "data" not in one(manifests, "Secret")
    secret = one(manifests, "Secret")["metadata"]["name"]
    assert secret == "hvd-ssh-2", "an upgrade cannot keep keys under another name"
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
    assert variables(manifests, "Job")["HVD_SSH_SECRET"] == secret


def test_only_the_worker_and_the_master_have_the_keys() -> None:
    holders = {
        c["name"]
        for c in containers_of(render(EVERY_POD))
        for m in c["volumeMounts"]
        if m["name"] == "ssh"
    }
    assert holders == {"worker", "master"}
    modes = [
        v["secret"]["defaultMode"] for p in pods().values() for v in p["volumes"] if "secret" in v
    ]
    assert modes == [0o440] * 3, "the owner and the group may read them"


def test_existing_secret_replaces_the_charts_own() -> None:
    manifests = render({"ssh": {"existingSecret": "mine"}})
    assert of_kind(manifests, "Secret") == []
    assert "secrets" not in str(one(manifests, "Role")["rules"]), "no right to the user's Secret"
    for kind in ("StatefulSet", "Job"):
        volumes = {v["name"]: v for v in pod_spec(one(manifests, kind))["volumes"]}
        # Without these keys the pod says what is missing, instead of waiting for the master.
        assert volumes["ssh"]["secret"] == {"secretName": "mine", "defaultMode": 0o440}


def test_ssh_listens_on_an_unprivileged_port() -> None:
    (port,) = main_container(render(), "StatefulSet")["ports"]
    assert port["containerPort"] == 2222


def test_variables_of_workers_are_not_in_the_masters_pod() -> None:
    """Ranks get a worker's variables within its pod, and never on a command line."""
    manifests = render({"worker": {"env": [{"name": "TOKEN", "value": "hunter2"}]}})
    assert "hunter2" in str(one(manifests, "StatefulSet"))
    assert "hunter2" not in str([item for item in manifests if item["kind"] != "StatefulSet"])
