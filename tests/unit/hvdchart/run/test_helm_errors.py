"""Helm's messages about what prevents an installation, and the remedy that hvdchart adds."""

from __future__ import annotations

import pytest

from hvdchart.errors import HelmError
from hvdchart.run.helm import Helm, deploy, release_values
from hvdchart.run.helm_errors import REMEDIES
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.run.test_helm import plan

# As Helm 3.19 and 4.3 print them.
MESSAGES = {
    "interrupted": (
        "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress",
        "another command changes this release: try again in a minute. If Helm was killed",
    ),
    "name taken": (
        'Error: Unable to continue with install: Service "run" in namespace "team" exists and '
        "cannot be imported into the current release: invalid ownership metadata; label validation "
        "error",
        "objects with that name do not belong to this release: choose another name",
    ),
    "two people": (
        'Error: INSTALLATION FAILED: secrets "sh.helm.release.v1.run.v1" already exists',
        "another user has just created it",
    ),
    "namespace": (
        'Error: INSTALLATION FAILED: create: failed to create: namespaces "team" not found',
        "there is no such namespace: add --create-namespace",
    ),
    "right": (
        'Error: query: failed to query with labels: secrets is forbidden: User "x" cannot list '
        'resource "secrets" in API group "" in the namespace "team"',
        "ask for this permission; `hvdchart doctor -n team` lists all that are missing",
    ),
    "credentials": (
        "Error: Kubernetes cluster unreachable: the server has asked for the client to provide "
        "credentials",
        "the cluster does not accept your credentials: renew those in the kubeconfig",
    ),
    "no cluster": (
        'Error: Kubernetes cluster unreachable: Get "https://10.0.0.1:6443/version": dial tcp '
        "10.0.0.1:6443: connect: connection refused",
        "the API server does not answer: check the kubeconfig and the network",
    ),
    "quota": (
        'Error: UPGRADE FAILED: statefulsets.apps "run-worker" is forbidden: exceeded quota: q, '
        "requested: count/statefulsets.apps=1",
        "ask for a larger quota, or use fewer or smaller workers",
    ),
    "large code": (
        'Error: INSTALLATION FAILED: create: failed to create: Secret "sh.helm.release.v1.run.v1" '
        "is invalid: data: Too long: must have at most 1048576 bytes",
        "Helm keeps all values in a Secret of at most 1 MiB: put large files of --code into",
    ),
    "half installed": (
        'Error: UPGRADE FAILED: "run" has no deployed releases',
        "an earlier installation was not completed: run `hvdchart undeploy run -n team`",
    ),
    "slow": ("Error: UPGRADE FAILED: context deadline exceeded", "the API server is slow"),
}


@pytest.mark.parametrize(("message", "remedy"), MESSAGES.values(), ids=MESSAGES)
def test_each_known_failure_has_a_remedy(helm: StubProgram, message: str, remedy: str) -> None:
    helm.answer("upgrade", errors=f"{message}\n", code=1)
    with pytest.raises(HelmError) as raised:
        deploy(plan(), "team")
    text = str(raised.value)
    assert text.startswith(f"helm upgrade: {message}; {remedy}")
    assert "\n" not in text


def test_every_remedy_is_tested() -> None:
    text = " ".join(message for message, _ in MESSAGES.values()).lower()
    assert [
        sign
        for sign in REMEDIES
        if sign.replace("{namespace}", "team").lower() not in text
        and sign not in ("nauthorized", "request is too large")
    ] == []


@pytest.mark.parametrize("version", ["v2.17.0", "v3.12.3"])
def test_a_helm_that_is_too_old_is_refused(helm: StubProgram, version: str) -> None:
    helm.answer("version", version)
    helm.answer("get", errors="Error: unknown command", code=1)
    with pytest.raises(
        HelmError, match=rf"helm is Helm {version[1:]}: install Helm 3\.13 or newer"
    ):
        release_values("run", "team", Helm())
