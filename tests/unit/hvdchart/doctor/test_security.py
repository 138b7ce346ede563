"""Whether Pod Security admits the pods of a run, and which settings it refuses."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from hvdchart.doctor.findings import Finding
from hvdchart.doctor.namespace_checks import (
    examine_security,
)
from hvdchart.doctor.pod_security import LEVELS
from hvdchart.spec.values_schema import default_values
from hvdchart.values.merge import merge_values
from tests.support.security_cases import SECURITY


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
    finding = judge({"enforce": "restricted", **labels}, ROOT_IN_USER_NAMESPACES, server)
    assert finding.state == state


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
    finding = judge({"enforce": "restricted"}, more)
    assert [name for name in names if name not in finding.text] == []
