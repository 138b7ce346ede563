"""What Helm is called with, by a `helm` that records it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.common.repository import EXAMPLE_VALUES
from devtools.common.waiting import wait_until
from devtools.pods.warm_worker import is_alive
from hvdchart.errors import HelmError
from hvdchart.run.helm import Helm, upgrade_release
from hvdchart.run.helm_process import WAITING
from hvdchart.values.check_values import checked_values
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.support.specs import plan_of_nodes
from tests.unit.hvdchart.objects import OWN_CHART

LOCAL = str(EXAMPLE_VALUES / "local.spec.yaml")
CHANGE = ["undeploy", "run"]


def start(helm: Path, script: str, words: list[str]) -> subprocess.Popen[str]:
    """`hvdchart` in a session of its own, as a terminal has, when this Helm has begun.

    The script may print a line to the file `started` beside Helm, which is a queue. It does not run
    for `helm get`, which finds a release of the chart.
    """
    os.mkfifo(helm.with_name("started"))
    get = f"""[ "$1" = get ] && echo '{json.dumps(OWN_CHART)}' && exit"""
    # Its input ends when hvdchart waits for it.
    helm.write_text(f"#!/bin/sh\ncd {helm.parent}\ncat >/dev/null\n{get}\n{script}\n")
    helm.chmod(0o755)
    command = [sys.executable, "-m", "hvdchart", *words, "--helm", str(helm)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def interrupted(folder: Path, words: list[str]) -> str:
    """Send Ctrl-C to hvdchart while its Helm works, and return what it has said.

    Helm leaves a file `completed` if it is not ended.
    """
    script = "trap 'exit 1' INT\necho >started\nsleep 2\necho >completed"
    with start(folder / "helm", script, words) as running:
        # Reading waits until Helm has opened it too.
        (folder / "started").read_text()
        # Ctrl-C goes to all processes of the terminal.
        os.killpg(running.pid, signal.SIGINT)
        _, errors = running.communicate(timeout=20)
    assert running.returncode == 130
    return errors


@pytest.mark.slow
def test_interrupt_lets_helm_complete_a_change(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    """Half of an upgrade leaves objects that no revision of the release has."""
    errors = interrupted(tmp_path, CHANGE)
    assert (tmp_path / "completed").exists()
    assert WAITING in errors


@pytest.mark.slow
def test_interrupt_ends_a_helm_that_only_reads(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    errors = interrupted(tmp_path, ["render", LOCAL, "--manifests"])
    assert not (tmp_path / "completed").exists()
    assert WAITING not in errors


@pytest.mark.slow
def test_second_interrupt_ends_helm_and_what_it_has_started(
    fake_cluster: FakeCluster, tmp_path: Path
) -> None:
    """Such as a plugin that asks for credentials."""
    script = "sleep 300 &\necho $! >started\nwait"
    with start(tmp_path / "helm", script, CHANGE) as running:
        plugin = int((tmp_path / "started").read_text())
        running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        assert running.stderr.readline() == f"{WAITING}\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(8) == 130
    wait_until(lambda: not is_alive(plugin), 5, "the plugin ends")


# As Helm 3.19 and 4.3 print them. The first sign of several decides.
MESSAGES = {
    'Error: Service "run" in namespace "team" exists and cannot be imported into the current '
    "release: invalid ownership metadata": "objects with that name do not belong to this release",
    'Error: INSTALLATION FAILED: create: failed to create: namespaces "team" not found': (
        "there is no such namespace: create it with `--create-namespace`"
    ),
    'Error: statefulsets.apps "run-worker" is forbidden: exceeded quota: q': (
        "ask for a larger quota, or use fewer or smaller workers"
    ),
    'Error: UPGRADE FAILED: "run" has no deployed releases': (
        "an earlier installation was not completed: run `hvdchart undeploy run -n team`"
    ),
    "Error: UPGRADE FAILED: no such role": "",
}


@pytest.mark.parametrize(("message", "remedy"), MESSAGES.items())
def test_each_known_failure_has_a_remedy(helm: StubProgram, message: str, remedy: str) -> None:
    helm.answer("upgrade", errors=f"{message}\n", code=1)
    values = checked_values(plan_of_nodes("{name: n, count: 2, coresPerSocket: 2, memory: 4Gi}"))
    with pytest.raises(HelmError) as raised:
        upgrade_release("run", "team", values, Helm())
    text = str(raised.value)
    assert text.startswith(f"helm upgrade: {message}{'; ' if remedy else ''}{remedy}")
    assert "\n" not in text
