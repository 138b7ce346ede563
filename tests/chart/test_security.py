"""The rendered manifests keep the promises of docs/threat-model.md about pods and rights."""

from __future__ import annotations

import re
from functools import cache

import pytest

from devtools.common.repository import DOCS
from tests.chart.cases import EVERY_POD
from tests.chart.render import (
    Manifest,
    Values,
    containers_of,
    of_kind,
    one,
    pod_spec,
    pod_specs,
    render,
    run_settings,
)

PAGE = DOCS / "security.md"


@cache
def pods() -> dict[str, Manifest]:
    """Return the pod spec of each workload, by the kind of the workload."""
    return {kind.split()[0]: spec for kind, spec in pod_specs(render(EVERY_POD)).items()}


@pytest.fixture(params=["StatefulSet", "Job", "Deployment", "Pod"])
def pod(request: pytest.FixtureRequest) -> Manifest:
    """The pod spec of each kind of workload."""
    return pods()[request.param]


@pytest.mark.promise("pods refuse root")
def test_pods_refuse_root(pod: Manifest) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True


def test_pods_filter_system_calls(pod: Manifest) -> None:
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.promise("pods share nothing with their node")
def test_pods_share_nothing_with_their_node(pod: Manifest) -> None:
    assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


RESTRICTED: Values = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


@pytest.mark.promise("containers have no capability and gain no privilege")
def test_containers_have_no_capability_and_gain_no_privilege() -> None:
    contexts = [container["securityContext"] for container in containers_of(render(EVERY_POD))]
    assert contexts == [RESTRICTED] * len(contexts)


@pytest.mark.promise("containers write to these volumes only")
def test_containers_write_to_these_volumes_only() -> None:
    containers = containers_of(render(EVERY_POD))
    contexts = [container["securityContext"] for container in containers]
    assert {context["readOnlyRootFilesystem"] for context in contexts} == {True}
    writable = {
        container["name"]: {
            mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")
        }
        for container in containers
    }
    in_memory = {"/horovod/generated", "/horovod/bin/hvd_pods"}
    assert writable == {
        "master": {"/tmp", *in_memory, "/data"},
        "staging": {"/tmp", "/data"},
        "tensorboard": {"/tmp"},
        "worker": {"/tmp", "/dev/shm", *in_memory, "/data"},
    }


def test_what_pods_generate_stays_in_memory() -> None:
    volumes = {volume["name"]: volume for volume in pods()["StatefulSet"]["volumes"]}
    assert volumes["generated"]["emptyDir"]["medium"] == "Memory"


@pytest.mark.promise("strangers commands share no writable folder of the charts")
def test_strangers_commands_share_no_writable_folder_of_the_charts() -> None:
    """The master's /tmp has the code that it runs, and /horovod/generated its own programs."""
    shared = {
        (container["name"], mount["name"], mount.get("subPath"))
        for container in containers_of(render(EVERY_POD))
        for mount in container["volumeMounts"]
        if container["name"] == "staging" and mount["mountPath"] != "/data"
        if not mount.get("readOnly")
    }
    assert shared == {("staging", "tmp", "staging")}


@pytest.mark.promise("only the master and helm test have a token")
def test_only_the_master_and_helm_test_have_a_token() -> None:
    tokens = {kind: spec["automountServiceAccountToken"] for kind, spec in pods().items()}
    assert tokens == {"StatefulSet": False, "Job": True, "Deployment": False, "Pod": True}
    assert one(render(), "ServiceAccount")["automountServiceAccountToken"] is False


def test_pods_get_no_variables_of_services() -> None:
    assert {spec["enableServiceLinks"] for spec in pods().values()} == {False}


def test_master_without_an_account_has_no_token() -> None:
    manifests = render({"serviceAccount": {"create": False}})
    spec = pod_spec(one(manifests, "Job"))
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert run_settings(manifests)["has_api_access"] is False


GROUPS = [{"name": "cpu", "number": 3}, {"name": "gpu", "number": 2}]


def granted(manifests: list[Manifest]) -> dict[tuple[str, str], list[str] | None]:
    """What the Role grants: the names by resource and verbs; None for any name."""
    return {
        (resource, ", ".join(rule["verbs"])): rule.get("resourceNames")
        for rule in one(manifests, "Role")["rules"]
        for resource in rule["resources"]
    }


def test_page_lists_what_the_role_grants() -> None:
    section = PAGE.read_text().partition("\n## Rights of the master\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z/]+)`[^|]*\| ([a-z, ]+) \|", section, re.MULTILINE)
    assert set(rows) == set(granted(render()))


def test_page_describes_each_right_that_no_name_bounds() -> None:
    """A platform team decides by that table. A name does not bound what is written, either."""
    section = PAGE.read_text().partition("\n### What RBAC cannot bound\n")[2].partition("\n- ")[0]
    rows = re.findall(r"^\| ([a-z][^|]*) \|", section, re.MULTILINE)
    unbounded = {of for of, names in granted(render()).items() if names is None}
    missing = [
        f"{verb} {resource}"
        for resource, verbs in {*unbounded, ("statefulsets/scale", "patch")}
        for verb in verbs.split(", ")
        if not [row for row in rows if f"`{resource}`" in row and verb in re.findall(r"\w+", row)]
    ]
    assert missing == []
    assert [row for row in rows if "ConfigMap of staged data" in row]


@pytest.mark.parametrize(
    ("values", "made", "bound"),
    [
        ({}, ["hvd-master"], ["hvd-master"]),
        ({"serviceAccount": {"name": "own"}}, ["own"], ["own"]),
        # As in other charts: the Role is also that of an account which is there already.
        ({"serviceAccount": {"create": False, "name": "own"}}, [], ["own"]),
        ({"rbac": {"create": False}}, ["hvd-master"], []),
        ({"serviceAccount": {"create": False, "name": "own"}, "rbac": {"create": False}}, [], []),
        # Nobody else gets the rights, such as the namespace's default account.
        ({"serviceAccount": {"create": False}}, [], []),
    ],
)
@pytest.mark.promise("role is bound to the account of the master alone")
def test_role_is_bound_to_the_account_of_the_master_alone(
    values: Values, made: list[str], bound: list[str]
) -> None:
    manifests = render(values)
    accounts = of_kind(manifests, "ServiceAccount")
    assert [account["metadata"]["name"] for account in accounts] == made
    bindings = of_kind(manifests, "RoleBinding")
    subjects = [subject for binding in bindings for subject in binding["subjects"]]
    assert [(subject["kind"], subject["name"]) for subject in subjects] == [
        ("ServiceAccount", name) for name in bound
    ]
    roles = {binding["roleRef"]["name"] for binding in bindings}
    assert {role["metadata"]["name"] for role in of_kind(manifests, "Role")} == roles


@pytest.mark.promise("role grants only the verbs in use")
def test_role_grants_only_the_verbs_in_use() -> None:
    manifests = render({"workerGroups": GROUPS})
    assert granted(manifests) == {
        ("endpointslices", "list, watch"): None,
        ("pods", "list"): None,
        ("pods", "delete"): [*(f"hvd-cpu-{n}" for n in range(3)), "hvd-gpu-0", "hvd-gpu-1"],
        ("pods", "patch"): ["hvd-test"],
        ("events", "create, list"): None,
        ("jobs", "get"): [one(manifests, "Job")["metadata"]["name"]],
        ("statefulsets/scale", "get, patch"): ["hvd-cpu", "hvd-gpu"],
        ("configmaps", "get, create, patch"): ["hvd-run"],
        ("secrets", "get, patch"): ["hvd-agent-master", "hvd-agent-worker"],
    }


@pytest.mark.promise("variables of workers are not in the masters pod")
def test_variables_of_workers_are_not_in_the_masters_pod() -> None:
    """Ranks get a worker's variables within its pod, and never on a command line."""
    manifests = render({"worker": {"env": [{"name": "TOKEN", "value": "hunter2"}]}})
    assert "hunter2" in str(one(manifests, "StatefulSet"))
    assert "hunter2" not in str([item for item in manifests if item["kind"] != "StatefulSet"])
