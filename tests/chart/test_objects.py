"""The objects that the chart creates, and their most important fields."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.chart.render import IMAGE, Manifest, Values, of_kind, one, pod_spec, render, run_settings

DEFAULT_CENSUS = {
    "ConfigMap": 3,
    "Job": 1,
    "NetworkPolicy": 1,
    "Pod": 1,
    "Role": 1,
    "RoleBinding": 1,
    "Secret": 1,
    "Service": 1,
    "ServiceAccount": 1,
    "StatefulSet": 1,
}
GROUPS: Values = {
    "worker": {"number": 3, "env": [{"name": "A", "value": "1"}]},
    "workerGroups": [
        {"name": "cpu", "slots": 2},
        {
            "name": "gpu",
            "number": 2,
            "slots": 4,
            "resources": {"limits": {"nvidia.com/gpu": 4}},
            "env": [{"name": "B", "value": "2"}],
            "image": {"tag": "cuda"},
        },
    ],
}


@pytest.mark.parametrize(
    ("values", "difference"),
    [
        ({}, {}),
        (GROUPS, {"StatefulSet": 1}),
        ({"ssh": {"existingSecret": "mine"}}, {"Secret": -1}),
        (
            {"serviceAccount": {"create": False}},
            {"ConfigMap": -1, "Pod": -1, "Role": -1, "RoleBinding": -1, "ServiceAccount": -1},
        ),
    ],
)
def test_default_objects_are_complete(values: Values, difference: dict[str, int]) -> None:
    expected = Counter(DEFAULT_CENSUS)
    expected.update(difference)
    assert Counter(manifest["kind"] for manifest in render(values)) == +expected


def test_all_objects_are_namespaced() -> None:
    cluster_scoped = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Namespace"}
    assert not cluster_scoped & {manifest["kind"] for manifest in render(GROUPS)}


def test_worker_groups_inherit_from_worker() -> None:
    cpu, gpu = of_kind(render(GROUPS), "StatefulSet")
    assert (cpu["metadata"]["name"], cpu["spec"]["replicas"]) == ("hvd-cpu", 3)
    assert (gpu["metadata"]["name"], gpu["spec"]["replicas"]) == ("hvd-gpu", 2)
    names = [entry["name"] for entry in pod_spec(gpu)["containers"][0]["env"]]
    assert names[-2:] == ["A", "B"]
    assert pod_spec(cpu)["containers"][0]["image"].endswith(":0.28.1-tf2.21.0")
    assert pod_spec(gpu)["containers"][0]["image"] == f"{IMAGE}:cuda"


def test_run_settings_list_every_host() -> None:
    groups = run_settings(render(GROUPS))["groups"]
    listed = [(group["statefulSet"], group["number"], group["slots"]) for group in groups]
    assert listed == [("hvd-cpu", 3, 2), ("hvd-gpu", 2, 4)]


@pytest.mark.parametrize("values", [{}, GROUPS], ids=["default", "groups"])
def test_helm_3_and_helm_4_render_the_same(values: Values) -> None:
    """Helm 4 omits keys whose default is null; Helm 3 passes them to the templates."""
    first, second = (
        [item for item in render(values, helm=helm) if item["kind"] != "Secret"]
        for helm in ("helm3", "helm4")
    )
    assert first == second


def test_master_writes_each_line_of_its_log_at_once() -> None:
    """-I makes Python ignore PYTHONUNBUFFERED."""
    (master,) = pod_spec(one(render(), "Job"))["containers"]
    assert master["command"][:4] == ["python3", "-I", "-S", "-u"]


def test_service_publishes_addresses_of_pods_that_are_not_ready() -> None:
    service = one(render(), "Service")
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["clusterIP"] == "None"
    workers = one(render(), "StatefulSet")
    assert workers["spec"]["serviceName"] == service["metadata"]["name"]
    assert workers["spec"]["podManagementPolicy"] == "Parallel"


def job_name(values: Values) -> str:
    name: str = one(render(values), "Job")["metadata"]["name"]
    return name


def test_job_name_changes_with_the_run_only() -> None:
    base: Values = {"master": {"args": ["python", "train.py"]}}
    assert job_name(base) == job_name(base)
    for other in (
        {"master": {"args": ["python", "other.py"]}},
        {**base, "worker": {"number": 3}},
        {**base, "worker": {"env": [{"name": "LR", "value": "1"}]}},
        {**base, "image": {"tag": "other"}},
    ):
        assert job_name(other) != job_name(base), other
    # Kubernetes allows changes of the deadline and the number of retries during a run.
    for same in ("activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"):
        values = {"master": {**base["master"], same: 7}, "cleanup": "Always"}
        assert job_name(values) == job_name({**base, "cleanup": "Always"}), same


def revision(manifests: list[Manifest]) -> str:
    labels = one(manifests, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    return str(labels["horovod/revision"])


def test_worker_revision_ignores_changes_of_the_master() -> None:
    base, other_command = render(), render({"master": {"args": ["python", "other.py"]}})
    assert revision(base) == revision(other_command)
    assert revision(base) != revision(render({"image": {"tag": "other"}}))
    assert run_settings(base)["groups"][0]["revision"] == revision(base)


def test_arguments_reach_the_launcher_unchanged() -> None:
    args = ["python", "train.py", "--name=$(HOME)", 'quote"d', "back\\slash", "a b", "é"]
    assert run_settings(render({"master": {"args": args}}))["args"] == args


def test_suspended_run_has_no_pods() -> None:
    held, running = render({"master": {"suspend": True}}), render()
    assert one(held, "Job")["spec"]["suspend"] is True
    assert "suspend" not in one(running, "Job")["spec"], "Kueue decides"
    assert one(held, "StatefulSet")["spec"]["replicas"] == 0
    # Ending the suspension does not start another run.
    assert one(held, "Job")["metadata"]["name"] == one(running, "Job")["metadata"]["name"]


def test_elastic_run_lists_hosts_up_to_the_maximum() -> None:
    elastic = {"launch": {"mode": "elastic", "elastic": {"minRanks": 2, "maxRanks": 8}}}
    manifests = render({**elastic, "worker": {"number": 2, "slots": 2}})
    (group,) = run_settings(manifests)["groups"]
    assert (group["number"], group["maximum"]) == (2, 4)
    rules = one(manifests, "Role")["rules"]
    pods = next(rule for rule in rules if rule["verbs"] == ["delete"])
    assert pods["resourceNames"] == [f"hvd-worker-{ordinal}" for ordinal in range(4)]
    assert run_settings(render())["groups"][0]["maximum"] == 2


def test_helm_test_pod_equals_the_master_except_for_its_program() -> None:
    manifests = render()
    pod, job = one(manifests, "Pod"), one(manifests, "Job")
    annotations = pod["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "test"
    # `helm uninstall` would leave the pod of a test that failed.
    policies = annotations["helm.sh/hook-delete-policy"].split(",")
    assert set(policies) == {"before-hook-creation", "hook-succeeded", "hook-failed"}
    assert pod["spec"]["activeDeadlineSeconds"] < 300, "Helm's default time-out"
    (tester,), (master,) = pod["spec"]["containers"], pod_spec(job)["containers"]
    assert tester["command"][-1].endswith("selftest.py")
    listed = {entry["name"]: entry.get("value") for entry in tester["env"]}
    assert listed["HVD_TESTED_JOB"] == job["metadata"]["name"]
    for key in ("image", "securityContext", "volumeMounts"):
        assert tester[key] == master[key]


@pytest.mark.parametrize(
    ("uid", "volume"), [(1000, "files"), (4321, "files"), (0, None), (None, "generated")]
)
def test_passwd_entry_exists_for_every_uid_except_root(uid: int | None, volume: str | None) -> None:
    """The chart creates the entry; an init container does only if the platform sets the UID."""
    context = {"runAsUser": uid, "runAsNonRoot": uid != 0}
    manifests = render({"podSecurityContext": context})
    for kind in ("StatefulSet", "Job"):
        spec = pod_spec(one(manifests, kind))
        assert ("initContainers" in spec) is (volume == "generated")
        mounts = {m["mountPath"]: m["name"] for m in spec["containers"][0]["volumeMounts"]}
        assert mounts.get("/etc/passwd") == volume
        assert spec["securityContext"].get("runAsUser") == uid
    (files,) = [m for m in of_kind(manifests, "ConfigMap") if "launch.py" in m.get("data", {})]
    entries = files["data"].get("passwd", "").splitlines()
    if volume == "files":
        assert entries[0].split(":")[2:4] == [str(uid), "1000"]
    else:
        assert entries == []


def test_root_workers_get_the_capabilities_of_sshd() -> None:
    """That is enough under Pod Security `baseline` with a read-only root file system."""
    of_root = {"runAsUser": 0, "runAsNonRoot": False}
    for context, needs in (({}, False), (of_root, True)):
        spec = pod_spec(one(render({"podSecurityContext": context}), "StatefulSet"))
        container = spec["containers"][0]
        assert ("/run/sshd" in [m["mountPath"] for m in container["volumeMounts"]]) is needs
        added = container["securityContext"]["capabilities"].get("add", [])
        assert added == (["SETGID", "SETUID", "SYS_CHROOT"] if needs else [])
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_volumes_are_mounted_in_master_and_workers() -> None:
    values: Values = {
        "volumes": [{"name": "data", "hostPath": {"path": "/mnt/data"}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
    }
    for kind in ("StatefulSet", "Job"):
        spec = pod_spec(one(render(values), kind))
        assert values["volumes"][0] in spec["volumes"]
        assert values["volumeMounts"][0] in spec["containers"][0]["volumeMounts"]


def test_master_lists_the_pods_of_its_workers_by_their_labels() -> None:
    manifests = render(GROUPS)
    terms = run_settings(manifests)["workerSelector"].split(",")
    selected = dict(term.split("=") for term in terms)
    for workers in of_kind(manifests, "StatefulSet"):
        assert selected.items() <= workers["spec"]["template"]["metadata"]["labels"].items()
    assert selected["app.kubernetes.io/component"] == "worker"


def test_objects_fit_into_the_annotation_of_kubectl_apply() -> None:
    """Plain `kubectl apply` repeats an object in an annotation of at most 256 KiB."""
    sizes = {item["metadata"]["name"]: len(json.dumps(item)) for item in render({})}
    assert max(sizes.values()) < 240 * 1024, sizes
