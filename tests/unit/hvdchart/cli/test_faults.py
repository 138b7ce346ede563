"""A cluster that cannot be used: each command says so in one line, with the remedy."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from devtools.common.repository import EXAMPLE_VALUES, ROOT
from devtools.common.waiting import wait_until
from hvdchart.run import helm_errors
from hvdchart.run.helm_errors import UNREACHABLE
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command, Outcome
from tests.unit.hvdchart.played_runs import meanwhile

pytestmark = pytest.mark.timeout(120)
SPEC = str(EXAMPLE_VALUES / "local.spec.yaml")
COMMANDS = {
    **{
        name: (name, "hvd")
        for name in (
            "status",
            "logs",
            "events",
            "wait",
            "top",
            "stop",
            "restart",
            "tensorboard",
            "timeline",
        )
    },
    "list": ("list",),
    "exec": ("exec", "hvd", "0"),
    "stack": ("stack", "hvd", "0"),
    "scale": ("scale", "hvd", "3"),
    "deploy": ("deploy", SPEC),
    "run": ("run", str(ROOT / "tests" / "faults" / "train.py")),
    "bench": ("bench", SPEC),
}
# The commands that call Helm for an existing run.
CHANGING = ("stop", "restart", "scale", "deploy", "run", "bench")
HELM_COMMANDS = {
    **{name: COMMANDS[name] for name in CHANGING},
    "undeploy": ("undeploy", "hvd"),
    "dev": ("dev", SPEC, "--code", SPEC),
    "render": ("render", SPEC, "--manifests"),
}
READ = ("jobs", "pods", "statefulsets", "configmaps", "events", "services")
each_command = pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
# As Helm says it.
SLOW = "context deadline exceeded"
# These are of all runs, or of runs that are gone as well.
WITHOUT_RUN = ("list", "events", "deploy", "run", "bench")


def said(done: Outcome) -> str:
    """The only line of a command's errors, apart from what it says before it begins."""
    lines = done.errors.splitlines()
    (line,) = [line for line in lines if line.startswith("hvdchart: ") and " turns, " not in line]
    assert line == lines[-1]
    return line


@each_command
@pytest.mark.parametrize(
    ("status", "remedy"),
    [(401, "kubeconfig"), (403, "role")],
    ids=["expired credentials", "no rights"],
)
def test_refused_request_names_the_remedy(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    helm: StubProgram,
    words: tuple[str, ...],
    status: int,
    remedy: str,
) -> None:
    for resource in READ:
        fake_cluster.refusals[f"{resource} list"] = (status, "as the server says")
    done = hvdchart(*words)
    assert done.code == 7
    assert "(as the server says)" in said(done)
    assert remedy in said(done)
    assert helm.calls == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITHOUT_RUN])
def test_run_of_another_namespace_is_not_found(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, name: str
) -> None:
    done = hvdchart(*COMMANDS[name], "--namespace", "other")
    assert done.code == 7
    assert "no run hvd" in said(done)
    assert "namespace other" in said(done)


def be_missing(helm: StubProgram) -> None:
    helm.path.unlink()


def be_old(helm: StubProgram) -> None:
    fail_all(helm, "unknown flag")
    helm.answer("version", "v3.12.3")


def reach_nothing(helm: StubProgram) -> None:
    fail_all(helm, f"Kubernetes {UNREACHABLE}")


def fail_all(helm: StubProgram, why: str) -> None:
    for command in ("upgrade", "uninstall", "get", "template"):
        helm.answer(command, errors=f"Error: {why}", code=1)


@pytest.mark.parametrize("words", HELM_COMMANDS.values(), ids=HELM_COMMANDS)
@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        (be_missing, 6, "'helm'"),
        (be_old, 6, "3.12.3"),
        (reach_nothing, 7, f"Kubernetes {UNREACHABLE}"),
    ],
)
def test_helm_that_cannot_be_used_is_named_with_the_remedy(
    hvdchart: Command,
    running: FakeCluster,
    helm: StubProgram,
    words: tuple[str, ...],
    fault: Callable[[StubProgram], None],
    code: int,
    says: str,
) -> None:
    fault(helm)
    done = hvdchart(*words)
    assert done.code == code, done.errors
    assert says in said(done)


@pytest.mark.parametrize("name", [name for name in HELM_COMMANDS if name != "render"])
def test_helm_is_looked_for_before_the_cluster_is_asked(
    hvdchart: Command, running: FakeCluster, name: str
) -> None:
    done = hvdchart(*HELM_COMMANDS[name], "--helm", "nohelm")
    assert (done.code, running.requests) == (6, [])
    assert "'nohelm'" in said(done)


def interrupt_while_helm_works(
    helm: StubProgram, command: str, sent: signal.Signals = signal.SIGINT
) -> str:
    """Send a signal to a command while Helm upgrades, and return what it has said."""
    line = [sys.executable, "-m", "hvdchart", command, SPEC]
    with helm.hold("upgrade"):
        process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        wait_until(lambda: "upgrade" in helm.commands(), 20, "Helm works")
        process.send_signal(sent)
    _, errors = process.communicate(timeout=20)
    code = 130 if sent == signal.SIGINT else -sent
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    return errors


@pytest.mark.slow
def test_interrupted_measurement_uninstalls_its_release(
    fake_cluster: FakeCluster, helm: StubProgram
) -> None:
    interrupt_while_helm_works(helm, "bench")
    assert helm.commands()[-1] == "uninstall"


@pytest.mark.slow
def test_a_failed_removal_is_reported_before_the_signal_ends_the_command(
    fake_cluster: FakeCluster, helm: StubProgram
) -> None:
    helm.answer("uninstall", errors="Error: timed out", code=1)
    assert "Error: timed out" in interrupt_while_helm_works(helm, "bench", signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_deploy_leaves_its_release_and_says_how_to_remove_it(
    fake_cluster: FakeCluster, helm: StubProgram, sent: signal.Signals
) -> None:
    """It may be somebody's run that was to be changed."""
    errors = interrupt_while_helm_works(helm, "deploy", sent)
    assert "uninstall" not in helm.commands()
    assert errors.endswith("hvdchart undeploy hvd --namespace team\n")


def test_bench_does_not_touch_an_existing_release(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram
) -> None:
    helm.answer("get", json.dumps({"name": "run", "revision": 1}))
    done = hvdchart("bench", SPEC)
    assert done.code == 7
    assert "-bench " in said(done)
    assert not {"upgrade", "uninstall"} & {*helm.commands()}


@pytest.mark.parametrize(
    ("error", "says", "is_removed"),
    [
        (SLOW, helm_errors.REMEDIES[SLOW], True),
        (helm_errors.BUSY, "kubectl delete secret", False),
    ],
)
def test_bench_removes_its_failed_release_unless_another_command_changes_it(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    helm: StubProgram,
    error: str,
    says: str,
    is_removed: bool,
) -> None:
    helm.answer("upgrade", errors=f"Error: UPGRADE FAILED: {error}", code=1)
    helm.answer("uninstall", errors="Error: timed out", code=1)
    done = hvdchart("bench", SPEC)
    assert done.code == 6
    assert says in done.errors.splitlines()[-1]
    assert ("uninstall" in helm.commands()) is is_removed
    # Helm could not remove it, either.
    assert ("hvdchart undeploy" in done.errors) is is_removed


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("wait", "hvd"), ""),
        (("deploy", SPEC), "hvdchart logs hvd --namespace team\n"),
    ],
)
def test_interrupted_watch_leaves_the_run(
    hvdchart: Command, running: FakeCluster, helm: StubProgram, words: tuple[str, ...], says: str
) -> None:
    """Ctrl-C while the command waits for the API server."""

    def interrupt() -> None:
        running.wait_for("pods", "watch")
        # It ends what the main thread waits for.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with meanwhile(interrupt):
        done = hvdchart(*words)
    assert done.code == 130
    assert "Traceback" not in done.errors
    assert says in done.errors
    assert {request.method for request in running.requests} == {"GET"}
