"""The rendered manifests keep the promises of docs/security.md about pods, rights and keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.chart.cases import ready_cases, ready_manifests
from tests.chart.render import CHART, Manifest, Values, of_kind, one, pod_spec, refusal, render

# Values with which the chart renders every pod and every container that it has.
EVERY_POD: Values = {
    "podSecurityContext": {"runAsUser": None},
    "tensorboard": {"enabled": True, "logDir": "/data/logs"},
    "staging": {"command": ["true"], "path": "/data/set"},
    "results": {"command": ["true"], "path": "/data"},
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
}
NAMESPACED = {
    *("ConfigMap", "Deployment", "Job", "NetworkPolicy", "Pod", "PodDisruptionBudget", "PodGroup"),
    *("PodMonitor", "Role", "RoleBinding", "Secret", "Service", "ServiceAccount", "StatefulSet"),
}
PAGE = CHART.parents[1] / "docs" / "security.md"


@cache
def pods() -> dict[str, Manifest]:
    """Return the pod spec of each workload, by the kind of the workload."""
    manifests = render(EVERY_POD)
    workloads = {kind: pod_spec(one(manifests, kind)) for kind in ("StatefulSet", "Job")}
    workloads["Deployment"] = pod_spec(one(manifests, "Deployment"))
    return {**workloads, "Pod": one(manifests, "Pod")["spec"]}


def containers() -> Iterator[Manifest]:
    """Return all containers and init containers."""
    for spec in pods().values():
        yield from spec.get("initContainers", [])
        yield from spec["containers"]


def test_every_kind_of_container_is_looked_at() -> None:
    names = {container["name"] for container in containers()}
    assert names == {"master", "passwd", "results", "staging", "tensorboard", "worker"}


@pytest.mark.parametrize("case", ready_cases())
def test_objects_are_namespaced_and_extend_nothing(case: str) -> None:
    """A CustomResourceDefinition, a webhook or a ClusterRole would need cluster-wide rights."""
    assert {manifest["kind"] for manifest in ready_manifests(case)} <= NAMESPACED


def test_pods_refuse_root_and_filter_system_calls() -> None:
    for kind, spec in pods().items():
        assert spec["securityContext"]["runAsNonRoot"] is True, kind
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, kind
    assert pod_spec(one(render(), "Job"))["securityContext"]["runAsUser"] == 1000


def test_containers_have_no_capability_and_cannot_gain_privileges() -> None:
    for container in containers():
        context = container["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}, container["name"]
        assert context["allowPrivilegeEscalation"] is False, container["name"]
        assert not context.get("privileged"), container["name"]


def test_containers_write_to_volumes_only() -> None:
    writable = {}
    for container in containers():
        assert container["securityContext"]["readOnlyRootFilesystem"] is True, container["name"]
        mounts = container["volumeMounts"]
        writable[container["name"]] = {m["mountPath"] for m in mounts if not m.get("readOnly")}
    assert writable == {
        "master": {"/tmp", "/horovod/generated", "/data"},
        "passwd": {"/horovod/generated"},
        # Its directory of what the master has in /horovod/generated.
        "results": {"/tmp", "/horovod/results", "/data"},
        "staging": {"/tmp", "/data"},
        "tensorboard": {"/tmp"},
        "worker": {"/tmp", "/dev/shm", "/horovod/generated", "/run/sshd", "/data"},
    }
    volumes = {volume["name"]: volume for volume in pods()["StatefulSet"]["volumes"]}
    assert volumes["generated"]["emptyDir"]["medium"] == "Memory"


def test_pods_share_nothing_with_their_node() -> None:
    for spec in pods().values():
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume]


def test_only_the_master_and_helm_test_have_a_token() -> None:
    tokens = {kind: spec["automountServiceAccountToken"] for kind, spec in pods().items()}
    assert tokens == {"StatefulSet": False, "Job": True, "Deployment": False, "Pod": True}
    assert one(render(), "ServiceAccount")["automountServiceAccountToken"] is False
    assert {spec["enableServiceLinks"] for spec in pods().values()} == {False}
    # Kubernetes mounts the token where a container mounts nothing.
    hidden = "/var/run/secrets/kubernetes.io/serviceaccount"
    hiding = {
        c["name"] for c in containers() for m in c["volumeMounts"] if m["mountPath"] == hidden
    }
    assert hiding == {"results"}, "the user's command gets none of the master's rights"


def test_role_table_of_the_page_is_the_role() -> None:
    rows = re.findall(r"^\| `([a-z/]+)`[^|]*\| ([a-z, ]+) \|", PAGE.read_text(), re.MULTILINE)
    documented = {(resource, verbs) for resource, verbs in rows}
    rules = one(render(), "Role")["rules"]
    granted = {(rule["resources"][0], ", ".join(rule["verbs"])) for rule in rules}
    assert documented == granted
    assert [len(rule["resources"]) for rule in rules] == [1] * len(rules)
    unnamed = {rule["resources"][0] for rule in rules if "resourceNames" not in rule}
    assert unnamed == {"endpointslices", "events", "pods"}


def test_private_keys_are_files_that_group_and_owner_may_read() -> None:
    for kind in ("StatefulSet", "Job"):
        volumes = {volume["name"]: volume for volume in pods()[kind]["volumes"]}
        assert volumes["ssh"]["secret"]["secretName"] == "hvd-ssh"
        assert volumes["ssh"]["secret"]["defaultMode"] == 0o440
    holders = {c["name"] for c in containers() for m in c["volumeMounts"] if m["name"] == "ssh"}
    assert holders == {"worker", "master"}


def test_existing_secret_replaces_the_charts_own() -> None:
    manifests = render({"ssh": {"existingSecret": "mine"}})
    assert of_kind(manifests, "Secret") == []
    for kind in ("StatefulSet", "Job"):
        volumes = {v["name"]: v for v in pod_spec(one(manifests, kind))["volumes"]}
        # Without these keys the pod says what is missing, instead of waiting for the master.
        assert volumes["ssh"]["secret"] == {"secretName": "mine", "defaultMode": 0o440}


def test_new_keys_renew_the_workers() -> None:
    def revision(values: Values) -> str:
        template = one(render(values), "StatefulSet")["spec"]["template"]
        return str(template["metadata"]["labels"]["horovod/revision"])

    assert revision({"ssh": {"generation": 2}}) != revision({}) == revision({})
    other = one(render({"ssh": {"generation": 2}}), "Secret")["metadata"]["name"]
    assert other == "hvd-ssh-2", "an upgrade cannot keep keys under another name"


def test_ssh_listens_on_an_unprivileged_port() -> None:
    # Helm before 3.18 writes ssh.port, newer versions write /ssh/port.
    assert re.search(r"\bssh[./]port\b", refusal({"ssh": {"port": 1023}}))
    (port,) = pod_spec(one(render(), "StatefulSet"))["containers"][0]["ports"]
    assert port["containerPort"] == 2222


def test_variables_of_workers_are_not_in_the_masters_pod() -> None:
    """Ranks get a worker's variables within its pod, and never on a command line."""
    manifests = render({"worker": {"env": [{"name": "TOKEN", "value": "hunter2"}]}})
    assert "hunter2" in str(one(manifests, "StatefulSet"))
    assert "hunter2" not in str([item for item in manifests if item["kind"] != "StatefulSet"])
