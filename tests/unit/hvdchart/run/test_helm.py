"""What Helm is called with, by a `helm` that records it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvdchart.chart_files import chart_dir
from hvdchart.errors import ClusterError, HelmError, SpecError
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.run.helm import Helm, deploy, manifests, preview, release_values, undeploy, upgrade
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


def test_deploy_upgrades_or_installs_with_the_plans_values_only(helm: StubProgram) -> None:
    installed = deploy(plan(), "team")
    assert (installed.name, installed.namespace, installed.revision) == ("run", "team", 2)
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


def test_deploy_passes_on_the_context_and_the_creation_of_the_namespace(helm: StubProgram) -> None:
    deploy(plan(), "team", context="other", create_namespace=True)
    assert all(call.arguments[-2:] == ["--kube-context", "other"] for call in helm.calls)
    assert "--create-namespace" in helm.calls[-1].arguments


def test_arguments_reach_helm_without_a_shell(helm: StubProgram, tmp_path: Path) -> None:
    deploy(plan(), "team", context="$(touch harmed) 'a' \"b\"; touch harmed")
    assert helm.calls[-1].arguments[-1] == "$(touch harmed) 'a' \"b\"; touch harmed"
    assert not Path("harmed").exists()


def test_a_failure_of_helm_is_raised_with_its_message(helm: StubProgram) -> None:
    helm.answer("upgrade", errors="Error: UPGRADE FAILED: no such role\n", code=1)
    with pytest.raises(HelmError) as raised:
        deploy(plan(), "team")
    assert str(raised.value) == "helm upgrade: Error: UPGRADE FAILED: no such role"


def test_values_that_the_chart_refuses_do_not_reach_helm(helm: StubProgram) -> None:
    with pytest.raises(SpecError, match="values"):
        deploy(plan("values: {wroker: {number: 3}}\n"), "team")
    assert helm.calls == []


def test_undeploy_waits_for_the_deletion(helm: StubProgram) -> None:
    undeploy("run", "team", context="other")
    (call,) = helm.calls
    arguments = call.arguments
    assert arguments[:2] == ["uninstall", "run"]
    assert {"--wait", "--namespace", "team"} <= set(arguments)
    assert arguments[-2:] == ["--kube-context", "other"]


def test_undeploy_of_an_unknown_release_is_an_error(helm: StubProgram) -> None:
    message = "Error: uninstall: Release not loaded: run: release: not found\n"
    helm.answer("uninstall", errors=message, code=1)
    with pytest.raises(ClusterError, match=r"no run run in namespace team: .* hvdchart list"):
        undeploy("run", "team")
    helm.answer("uninstall", errors="Error: uninstall: timed out\n", code=1)
    with pytest.raises(HelmError, match=r"helm uninstall: .*timed out"):
        undeploy("run", "team")


def test_manifests_are_helms_own_text(helm: StubProgram) -> None:
    helm.answer("template", "---\n# Source: x\nkind: Job\n")
    assert manifests(plan(), "team") == "---\n# Source: x\nkind: Job\n"
    (call,) = helm.calls
    assert call.arguments == [
        *("template", "run", str(chart_dir()), "--namespace", "team"),
        *("--skip-crds", "--skip-tests", "--values", "-"),
    ]
    assert json.loads(call.input) == checked_values(plan())


def test_helm_is_named_by_a_path(helm: StubProgram, tmp_path: Path) -> None:
    other = tmp_path / "helm-4"
    helm.path.rename(other)
    helm.path.with_name("helm.d").rename(tmp_path / "helm-4.d")
    with pytest.raises(HelmError, match="no program 'helm' is on PATH: install Helm 3 or 4"):
        manifests(plan(), "team")
    assert manifests(plan(), "team", str(other)) == ""


@pytest.mark.parametrize(
    ("output", "code"), [("I am not Helm", 0), ("v3.19.0", 1)], ids=["no version", "failure"]
)
def test_a_program_that_is_not_helm_is_refused(helm: StubProgram, output: str, code: int) -> None:
    helm.answer("version", output, "no such command", code)
    helm.answer("uninstall", errors="no such command", code=1)
    helm.answer("get", "no JSON")
    with pytest.raises(HelmError, match="`helm version` does not print a version"):
        undeploy("run", "team")
    with pytest.raises(HelmError, match="`helm version` does not print a version"):
        release_values("run", "team", Helm())


def test_what_is_no_json_is_an_error(helm: StubProgram) -> None:
    helm.answer("get", "warning: no JSON")
    with pytest.raises(HelmError, match="helm does not print JSON: warning: no JSON"):
        release_values("run", "team", Helm())


@pytest.mark.slow
def test_interrupt_ends_the_command_while_helm_runs(tmp_path: Path) -> None:
    helm, started = tmp_path / "helm", tmp_path / "started"
    os.mkfifo(started)
    ended = tmp_path / "ended"
    # As Helm does, it marks its release as failed.
    mark = f"trap 'echo failed >{ended}; exit 1' INT"
    # Its input ends when hvdchart waits for it.
    begin = f"cat >/dev/null\necho $$ > {started}"
    helm.write_text(f"#!/bin/sh\n{mark}\n{begin}\nfor _ in $(seq 300); do sleep 0.1; done\n")
    helm.chmod(0o755)
    spec = Path(__file__).parents[4] / "values" / "local.spec.yaml"
    command = [sys.executable, "-m", "hvdchart", "render", str(spec), "--manifests"]
    with subprocess.Popen(
        [*command, "--helm", str(helm)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        # Reading waits until Helm has opened it too.
        started.read_text()
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 130
    assert ended.read_text() == "failed\n"


def test_a_helm_that_does_not_end_when_interrupted_is_killed(
    helm: StubProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []

    class Stuck(subprocess.Popen[str]):
        def communicate(self, *arguments: Any, **more: Any) -> Any:
            raise KeyboardInterrupt

        def wait(self, timeout: float | None = None) -> int:
            if not killed:
                raise subprocess.TimeoutExpired("helm", timeout or 0.0)
            return super().wait(timeout)

        def kill(self) -> None:
            killed.append(self.pid)
            super().kill()

    monkeypatch.setattr(subprocess, "Popen", Stuck)
    with pytest.raises(KeyboardInterrupt):
        undeploy("run", "team")
    assert len(killed) == 1


def test_upgrade_creates_no_namespace_unless_asked_to(helm: StubProgram) -> None:
    upgrade("run", "team", checked_values(plan()), Helm())
    assert "--create-namespace" not in helm.calls[-1].arguments
    upgrade("run", "team", checked_values(plan()), Helm(), create_namespace=True)
    assert "--create-namespace" in helm.calls[-1].arguments


def test_emoji_reach_helm_as_they_are(helm: StubProgram) -> None:
    upgrade("run", "team", {"command": "\N{GRINNING FACE}"}, Helm())
    assert "\N{GRINNING FACE}" in helm.calls[-1].input


def test_a_preview_has_the_manifests_without_secrets(helm: StubProgram) -> None:
    manifest = "---\nkind: Secret\n---\nkind: Job\n"
    helm.answer("upgrade", json.dumps({"manifest": manifest}))
    shown = preview(plan(), "team", Helm())
    assert (shown.before, shown.after) == ("", "---\nkind: Job\n")
