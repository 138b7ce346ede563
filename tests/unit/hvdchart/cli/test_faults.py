"""A cluster that cannot be used: each command says so in one line, with the way out."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from tests.fakes.cluster import FakeCluster, write_kubeconfig
from tests.fakes.fixtures import Command, Outcome
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.cli.test_run import play
from tests.unit.hvdchart.runs import MASTER, RUNNING, STATEFUL_SET, job, pod

pytestmark = pytest.mark.timeout(30)
COMMANDS = {
    "status": ("status", "hvd"),
    "list": ("list",),
    "logs": ("logs", "hvd"),
    "events": ("events", "hvd"),
    "wait": ("wait", "hvd"),
    "top": ("top", "hvd"),
    "exec": ("exec", "hvd", "0"),
    "stack": ("stack", "hvd", "0"),
    "stop": ("stop", "hvd"),
    "restart": ("restart", "hvd"),
    "scale": ("scale", "hvd", "3"),
    "tensorboard": ("tensorboard", "hvd"),
    "timeline": ("timeline", "hvd"),
    "code": ("code", "hvd", "-w", "folder"),
}
READ = ("jobs", "pods", "statefulsets", "configmaps", "events", "services")
each_command = pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
# These are of all runs, or of runs that are gone as well.
WITHOUT_RUN = ("list", "events")


@pytest.fixture
def silent(kubeconfig_file: Path) -> Iterator[None]:
    """An API server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        write_kubeconfig(kubeconfig_file, f"http://127.0.0.1:{server.getsockname()[1]}")
        yield


def said(done: Outcome) -> str:
    """The only line of a command's errors."""
    (line,) = done.errors.splitlines()
    return line


@each_command
@pytest.mark.parametrize(
    ("status", "remedy"),
    [(401, "renew those in the kubeconfig"), (403, "ask for a role with that permission")],
    ids=["expired credentials", "no rights"],
)
def test_refused_request_has_the_way_out(
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
    assert done.errors.endswith(f"{remedy}\n")
    assert helm.calls == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITHOUT_RUN])
def test_run_of_another_namespace_is_not_found_and_can_be_looked_for(
    hvdchart: Command, fake_cluster: FakeCluster, helm: StubProgram, name: str
) -> None:
    done = hvdchart(*COMMANDS[name], "--namespace", "other")
    assert done.code == 7
    assert "no run hvd" in said(done)
    assert "namespace other" in said(done)


def test_server_that_says_nothing_is_given_up(
    hvdchart: Command, silent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeout = urllib3.Timeout
    monkeypatch.setattr("hvdchart.run.api.urllib3.Timeout", lambda connect, read: timeout(0.1))
    done = hvdchart("status", "hvd")
    assert done.code == 7
    assert "cannot list jobs in namespace team: the API server does not answer" in said(done)
    assert "timed out" in said(done)


@pytest.mark.parametrize("words", [("status", "hvd", "--watch"), ("wait", "hvd")])
def test_interrupted_watch_leaves_the_run(
    hvdchart: Command, fake_cluster: FakeCluster, words: tuple[str, ...]
) -> None:
    """Ctrl-C while the command waits for the API server."""
    play(fake_cluster, job(), MASTER)

    def interrupt() -> None:
        fake_cluster.wait_for("pods", "watch")
        # It ends what the main thread waits for.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    done = hvdchart(*words)
    interrupting.join()
    assert done.code == 130
    assert "Traceback" not in done.errors
    assert {request.method for request in fake_cluster.requests} == {"GET"}


def test_two_hundred_pods_take_no_more_requests(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    play(fake_cluster, job(), MASTER)
    assert hvdchart("status", "hvd").code == 0
    few = len(fake_cluster.requests)
    many = [pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in range(200)]
    fake_cluster.put("pods", *many)
    fake_cluster.put("statefulsets", {**STATEFUL_SET, "spec": {"replicas": 200}})
    done = hvdchart("status", "hvd")
    assert "200 of 200 workers up" in done.output
    assert len(fake_cluster.requests) == 2 * few
    assert len(done.output.splitlines()) < 20
