"""What Helm is called with, by a `helm` that records it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hvdchart.chart_files import chart_dir
from hvdchart.errors import HelmError
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.run.helm import Helm, upgrade
from hvdchart.spec.load import parse_spec
from hvdchart.values.check import checked_values
from tests.fakes.program import StubProgram

NODES = "[{name: n, count: 2, coresPerSocket: 2, memory: 4Gi}]"
SPEC = (
    "apiVersion: hvdchart/v1\nname: run\nimage: {repository: a}\n"
    f"nodes: {NODES}\ntrain: {{command: [a]}}\n"
)


def plan(more: str = "") -> Plan:
    return make_plan(parse_spec((SPEC + more).encode()))


def deploy(plan: Plan, helm: Helm | None = None) -> int:
    return upgrade("run", "team", checked_values(plan), helm or Helm())


def test_deploy_upgrades_or_installs_with_the_plans_values_only(helm: StubProgram) -> None:
    assert deploy(plan()) == 2
    assert helm.commands() == ["upgrade"], "each further call takes a tenth of a second"
    call = helm.calls[-1]
    assert call.arguments[:3] == ["upgrade", "run", str(chart_dir())]
    options = set(call.arguments[3:])
    assert call.arguments[call.arguments.index("--history-max") + 1] == "10"
    assert "--disable-openapi-validation" not in options
    assert {"--install", "--reset-values", "--namespace", "team"} <= options
    assert not options & {"--wait", "--atomic", "--reuse-values", "--create-namespace"}
    assert "--kube-context" not in options
    assert json.loads(call.input) == checked_values(plan())


@pytest.mark.slow
def test_helm_that_is_interrupted_comes_to_its_end(tmp_path: Path) -> None:
    """Half of an upgrade leaves objects that no revision of the release has."""
    helm, started, ended = (tmp_path / name for name in ("helm", "started", "ended"))
    os.mkfifo(started)
    # Its input ends when hvdchart waits for it. Ctrl-C goes to all processes of the terminal.
    helm.write_text(
        f"#!/bin/sh\ntrap 'echo interrupted >{ended}; exit 1' INT\ncat >/dev/null\n"
        f"echo $$ >{started}\nsleep 1\necho complete >{ended}\n"
    )
    helm.chmod(0o755)
    spec = Path(__file__).parents[4] / "values" / "local.spec.yaml"
    command = [sys.executable, "-m", "hvdchart", "render", str(spec), "--manifests"]
    with subprocess.Popen(
        [*command, "--helm", str(helm)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    ) as running:  # fmt: skip
        # Reading waits until Helm has opened it too.
        started.read_text()
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(20) == 130
    assert ended.read_text() == "complete\n"


# As Helm 3.19 and 4.3 print them. The first sign of several decides.
MESSAGES = {
    'Error: Service "run" in namespace "team" exists and cannot be imported into the current '
    "release: invalid ownership metadata": "objects with that name do not belong to this release",
    'Error: INSTALLATION FAILED: secrets "sh.helm.release.v1.run.v1" already exists':
        "another user has just created it",
    'Error: INSTALLATION FAILED: create: failed to create: namespaces "team" not found':
        "there is no such namespace: add --create-namespace",
    'Error: secrets is forbidden: User "x" cannot list resource "secrets"':
        "ask for this permission; `hvdchart doctor -n team` lists all that are missing",
    "Error: Kubernetes cluster unreachable: the server has asked for the client to provide "
    "credentials": "the cluster does not accept your credentials: renew those in the kubeconfig",
    'Error: statefulsets.apps "run-worker" is forbidden: exceeded quota: q':
        "ask for a larger quota, or use fewer or smaller workers",
    'Error: Secret "sh.helm.release.v1.run.v1" is invalid: data: Too long: must have at most '
    "1048576 bytes": "Helm keeps all values in a Secret of at most 1 MiB: put large files of",
    'Error: UPGRADE FAILED: "run" has no deployed releases':
        "an earlier installation was not completed: run `hvdchart undeploy run -n team`",
    "Error: UPGRADE FAILED: no such role": "",
}  # fmt: skip


@pytest.mark.parametrize(("message", "remedy"), MESSAGES.items())
def test_each_known_failure_has_a_remedy(helm: StubProgram, message: str, remedy: str) -> None:
    helm.answer("upgrade", errors=f"{message}\n", code=1)
    with pytest.raises(HelmError) as raised:
        deploy(plan())
    text = str(raised.value)
    assert text.startswith(f"helm upgrade: {message}{'; ' if remedy else ''}{remedy}")
    assert "\n" not in text
