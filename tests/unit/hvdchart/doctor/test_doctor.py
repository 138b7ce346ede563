"""doctor: tools, rights, and whether a namespace has room for the pods of a run."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from hvdchart.chart_files import chart_dir
from hvdchart.doctor.findings import Finding
from hvdchart.doctor.namespace_checks import (
    examine_claims,
    examine_gpus,
    examine_image,
    examine_quotas,
    examine_security,
)
from hvdchart.doctor.needs import pod_needs
from hvdchart.doctor.pod_security import LEVELS
from hvdchart.doctor.rights import TO_DEPLOY, TO_FOLLOW, Right, needed_rights
from hvdchart.spec.values_schema import default_values
from hvdchart.values.merge import merge_values
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.support.role import role_rules
from tests.support.security_cases import SECURITY
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import STATEFUL_SET, job
from tests.unit.hvdchart.played_runs import SPEC

VALUES: dict[str, Any] = {
    "worker": {"number": 4, "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}},
    "master": {"resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}},
}
GPU: dict[str, Any] = {"worker": {"number": 3, "resources": {"limits": {"nvidia.com/gpu": "4"}}}}


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
    assert any(re.search(problem, each.text) and remedy in each.remedy for each in findings)


def judge(labels: dict[str, str], more: Any, server: str = "v1.37.2") -> Finding:
    """What `doctor` says of a run with these values in a namespace with these labels."""
    pod_security = {f"pod-security.kubernetes.io/{key}": value for key, value in labels.items()}
    values = merge_values(default_values(), more)
    return examine_security({"metadata": {"labels": pod_security}}, server, values)


@pytest.mark.parametrize(("case", "enforced"), [*product(SECURITY, LEVELS)])
def test_pod_security_admits_the_pods_or_not(case: str, enforced: str) -> None:
    values, level = SECURITY[case]
    finding = judge({"enforce": enforced}, values)
    is_admitted = LEVELS.index(level) <= LEVELS.index(enforced)
    assert finding.state == ("ok" if is_admitted else "problem")
    assert (level in finding.remedy) is not is_admitted


def test_namespace_without_the_label_admits_all_pods() -> None:
    assert judge({}, {"hostNetwork": True}).state == "ok"


ROOT_IN_USER_NAMESPACES = SECURITY["root in user namespaces"][0]


@pytest.mark.parametrize(
    ("labels", "server", "state"),
    [
        ({}, "v1.35.0", "ok"),
        ({}, "v1.34.9", "problem"),
        ({"enforce-version": "latest"}, "v1.40.0-gke.1", "ok"),
        ({"enforce-version": "v1.34"}, "v1.37.2", "problem"),
        ({"enforce-version": "v1.37"}, "v1.34.9", "problem"),
        ({}, "", "ok"),
    ],
)
def test_pod_security_is_that_of_the_namespaces_version(
    labels: dict[str, str], server: str, state: str
) -> None:
    found = judge({"enforce": "restricted", **labels}, ROOT_IN_USER_NAMESPACES, server)
    assert found.state == state


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"hostNetwork": True}, ["`hostNetwork`"]),
        ({"podSecurityContext": {"runAsUser": 0}}, ["`podSecurityContext.runAsUser`"]),
        ({"podSecurityContext": {"seccompProfile": None}}, ["`securityContext.seccompProfile."]),
        ({"securityContext": {"privileged": True}}, ["`securityContext.privileged`"]),
        ({"worker": {"capabilities": ["IPC_LOCK"]}}, ["`worker.capabilities`"]),
        ({"worker": {"podSpec": {"hostPID": True}}}, ["`worker.podSpec.hostPID`"]),
        ({"master": {"podSpec": {"hostIPC": True}}}, ["`master.podSpec.hostIPC`"]),
        (
            {"workerGroups": [{"name": "a"}, {"name": "b", "podSpec": {"hostPID": True}}]},
            ["`workerGroups[b].podSpec.hostPID`"],
        ),
        (SECURITY["NFS"][0], ["nfs volume v0"]),
        (SECURITY["folder of the node as /tmp"][0], ["hostPath volume v"]),
        (SECURITY["privileged init container"][0], ["privileged of the container added"]),
        (SECURITY["probe of another host"][0], ["`worker.container.livenessProbe.httpGet.host`"]),
        (SECURITY["no AppArmor by annotation"][0], ["annotation container.apparmor."]),
        (SECURITY["pod among the objects"][0], ["Pod a of `extraObjects`"]),
        (
            {"hostNetwork": True, "securityContext": {"allowPrivilegeEscalation": True}},
            ["`hostNetwork`", "`securityContext.allowPrivilegeEscalation`"],
        ),
        (
            {"securityContext": {"windowsOptions": {"hostProcess": True}}},
            ["`securityContext.windowsOptions.hostProcess`"],
        ),
    ],
)
def test_each_setting_that_pod_security_refuses_is_named(more: Any, names: list[str]) -> None:
    found = judge({"enforce": "restricted"}, more)
    assert [name for name in names if name not in found.text] == []


def claim(phase: str = "Bound", mode: str = "ReadWriteMany", storage_class: str = "slow") -> Any:
    return {
        "spec": {"accessModes": [mode], "storageClassName": storage_class},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("found", "workers", "problem"),
    [
        (claim(), 4, ""),
        (None, 1, "does not exist"),
        (claim("Pending"), 1, "Pending"),
        (claim("Pending", storage_class="late"), 1, ""),
        (claim(mode="ReadWriteOnce"), 1, ""),
        (claim(mode="ReadWriteOnce"), 2, "ReadWriteOnce"),
    ],
)
def test_claims_can_be_mounted_or_not(found: Any, workers: int, problem: str) -> None:
    classes = [{"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}]
    (finding,) = examine_claims({"data": found}, classes, workers)
    assert finding.state == ("problem" if problem else "ok")
    assert problem in finding.text


@pytest.mark.parametrize(
    ("image", "state"),
    [
        ({"repository": "python", "tag": "3.11"}, "unknown"),
        ({"repository": "loaded", "tag": "1"}, "ok"),
        ({"repository": "loaded"}, "unknown"),
        ({"repository": "host/a", "digest": "sha256:0"}, "ok"),
        ({"repository": "host/a", "tag": "1"}, "unknown"),
    ],
)
def test_nodes_can_have_the_image_or_not(image: dict[str, str], state: str) -> None:
    names = ["docker.io/library/loaded:1", "host/a@sha256:0"]
    node = {"status": {"images": [{"names": names}]}}
    assert examine_image([node, node], {"image": image}).state == state


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
    findings = [examine_image([node, *others], values) for others in ([], [{**node, "status": {}}])]
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


def test_the_rights_of_the_masters_role_are_needed_to_create_it() -> None:
    """RBAC lets nobody grant what they do not have."""
    rules = role_rules()
    assert len(rules) >= 8
    granted = {
        Right(*each)
        for rule in rules
        for each in product(rule["apiGroups"], rule["resources"], rule["verbs"])
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


pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def cluster(fake_cluster: FakeCluster, helm: StubProgram, programs: Path) -> FakeCluster:
    """A cluster in which nothing is missing."""
    fake_cluster.created_status = {"allowed": True}
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    fake_cluster.put("namespaces", {"metadata": {"name": "team", "labels": labels}})
    fake_cluster.put("nodes", {"metadata": {"name": "n"}, "status": {"allocatable": {}}})
    for program in ("kubectl", "buildah"):
        StubProgram(programs, program)
    return fake_cluster


def test_a_cluster_without_problems_exits_with_0(hvdchart: Command, cluster: FakeCluster) -> None:
    """Each finding is a line."""
    done = hvdchart("doctor")
    assert (done.code, done.errors) == (0, ""), done.output
    assert "PROBLEM" not in done.output
    lines = done.output.splitlines()
    assert lines[0] == "ok       Helm                    helm is version 4.3.1"
    assert "ok       cluster                 Kubernetes v1.34.4" in lines
    assert "ok       image builder           buildah" in lines


@pytest.mark.parametrize("output", [None, "a: b", "v2.17.0"])
def test_helm_that_cannot_be_used_is_a_problem_with_its_remedy(
    hvdchart: Command, cluster: FakeCluster, programs: Path, output: str | None
) -> None:
    """A colon in the name or in the output is no end of the problem."""
    name = "my: helm"
    if output is not None:
        (programs / name).write_text(f"#!/bin/sh\necho '{output}'\n")
        (programs / name).chmod(0o755)
    done = hvdchart("doctor", "--helm", name, "-o", "json")
    (found,) = (each for each in json.loads(done.output) if each["subject"] == "Helm")
    assert found["state"] == "problem"
    assert name in found["text"]
    assert "--helm PATH" in found["remedy"]
    assert name not in found["remedy"]


def test_workers_without_a_master_are_a_problem(hvdchart: Command, cluster: FakeCluster) -> None:
    """A quota, for instance, has refused the Job: nothing in the cluster ends them."""
    cluster.put("statefulsets", STATEFUL_SET)
    done = hvdchart("doctor", "-o", "json")
    (finding,) = (each for each in json.loads(done.output) if each["state"] == "problem")
    assert finding["text"].startswith("hvd: 2 workers ")
    assert "hvdchart undeploy hvd -n team" in finding["remedy"]
    cluster.put("jobs", job())
    assert hvdchart("doctor").code == 0


@pytest.fixture
def spec_with_problems(cluster: FakeCluster, helm: StubProgram, tmp_path: Path) -> Path:
    """A spec that does not fit the cluster; Helm and all rights are missing, too."""
    helm.path.unlink()
    cluster.created_status = {"allowed": False}
    volumes = {"data": {"hostPath": "/data"}, "output": {"pvc": "results"}}
    spec = tmp_path / "run.spec.yaml"
    spec.write_text(json.dumps({**SPEC, "volumes": volumes}))
    cluster.put(
        "resourcequotas",
        {
            "metadata": {"name": "q"},
            "spec": {},
            "status": {"hard": {"pods": "1"}, "used": {}},
        },
    )
    return spec


def test_problems_are_found_with_their_remedies_and_counted(
    hvdchart: Command, spec_with_problems: Path
) -> None:
    done = hvdchart("doctor", spec_with_problems, "-o", "json")
    assert (done.code, done.errors) == (7, "hvdchart: 6 problems found\n")
    problems = [each for each in json.loads(done.output) if each["state"] == "problem"]
    assert all(each["remedy"] for each in problems)
    texts = {each["subject"]: each["text"] for each in problems}
    assert texts.keys() == {
        "Helm",
        TO_DEPLOY,
        TO_FOLLOW,
        "Pod Security",
        "quotas",
        "claim results",
    }
    assert "privileged for the hostPath volume data" in texts["Pod Security"]


def test_volume_of_nfs_is_refused_by_pod_security(
    hvdchart: Command, cluster: FakeCluster, script: Path
) -> None:
    options = ["--image", "a/b:1", "--volume", "data=nfs:srv:/exp:/data"]
    done = hvdchart("doctor", script, *options, "-o", "json")
    assert done.code == 7
    (found,) = (each for each in json.loads(done.output) if each["subject"] == "Pod Security")
    assert found["state"] == "problem"
    assert "nfs volume data" in found["text"]


def test_remedies_for_a_script_name_its_options(
    hvdchart: Command, cluster: FakeCluster, script: Path
) -> None:
    hard = {"limits.cpu": "100"}
    quota = {"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard}}
    cluster.put("resourcequotas", quota)
    output = hvdchart("doctor", script).output
    assert "`--cpu`, `--set values.master.resources.limits.cpu`" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refused", "words", "code", "expected"),
    [
        # What one may not read is no problem.
        (
            [
                "namespaces get",
                "resourcequotas list",
                "storageclasses list",
                "nodes list",
                "endpointslices list",
            ],
            [],
            0,
            dict.fromkeys(("namespace", "quotas", "DNS", "storage", "GPUs"), "unknown"),
        ),
        (["version list"], [], 7, {"cluster": "problem", "Helm": "ok"}),
        ([], ["-n", "none"], 7, {"cluster": "ok", "namespace": "problem"}),
        ([], [], 0, {"image builder": "unknown", TO_DEPLOY: "ok"}),
    ],
)
def test_what_cannot_be_examined_is_unknown_or_a_problem(
    hvdchart: Command,
    cluster: FakeCluster,
    programs: Path,
    refused: list[str],
    words: list[str],
    code: int,
    expected: dict[str, str],
) -> None:
    cluster.refusals = dict.fromkeys(refused, (403, "no right"))
    (programs / "buildah").write_text("#!/bin/sh\nexit 1\n")
    done = hvdchart("doctor", *words, "-o", "json")
    assert done.code == code
    states = {item["subject"]: item["state"] for item in json.loads(done.output)}
    assert states.items() >= expected.items()
