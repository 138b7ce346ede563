"""debug: a copy of the run's pods, with a kubectl and a Helm that record their calls."""

from __future__ import annotations

import json
import threading

import pytest

from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command, answer_as
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.cli.test_control import VALUES, upgraded
from tests.unit.hvdchart.cli.test_run import play
from tests.unit.hvdchart.runs import LABELS, MASTER, RUNNING, STATEFUL_SET, event, job, pod
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def running(fake_cluster: FakeCluster) -> FakeCluster:
    """A run that goes on, of a release with these values."""
    return play(fake_cluster, job(), MASTER)


def test_debug_starts_a_copy_without_the_training_and_removes_it(
    hvdchart: Command, running: FakeCluster, helm: StubProgram, kubectl: StubProgram
) -> None:
    values = {
        **VALUES, "fullnameOverride": "x", "extraObjects": [{}], "tensorboard": {"enabled": True},
        "launch": {"mode": "elastic", "hostsTimeoutSeconds": 9, "elastic": {"minRanks": 1}},
    }  # fmt: skip
    helm.answer("get", json.dumps(values))
    answer_as(helm, "hvd-debug")
    kubectl.answer("team", code=5)

    held = threading.Event()

    def start() -> None:
        copy = job(name="hvd-debug-master-1")
        master = pod("hvd-debug-x", "master", RUNNING, ready=True, job="hvd-debug-master-1")
        with helm.hold("upgrade"):
            held.set()
            wait_until(lambda: "upgrade" in helm.commands(), 20, "Helm installs the copy")
            for kind, item in (("pods", master), ("jobs", copy)):
                labels = {**item["metadata"]["labels"], "app.kubernetes.io/instance": "hvd-debug"}
                running.put(kind, {**item, "metadata": {**item["metadata"], "labels": labels}})
        about = "hvd-debug-master-1"
        running.put("events", event(about, "Job", "Training", "starts", type="Normal"))

    starting = threading.Thread(target=start)
    starting.start()
    held.wait()
    done = hvdchart("debug", "hvd", "master", "--", "ls")
    starting.join()
    assert (done.code, done.errors) == (5, "")
    assert upgraded(helm) == {
        "worker": VALUES["worker"],
        "launch": {"mode": "custom", "hostsTimeoutSeconds": 9},
        "master": {
            "args": ["sh", "-c", "exec sleep infinity"], "backoffLimit": 0, "suspend": False,
            "activeDeadlineSeconds": None,
        },
    }  # fmt: skip
    (call,) = [call for call in helm.calls if call.arguments[0] == "upgrade"]
    assert call.arguments[1] == "hvd-debug"
    assert "--install" in call.arguments
    assert helm.calls[-1].arguments[:2] == ["uninstall", "hvd-debug"]
    assert kubectl.calls[0].arguments[-1:] == ["ls"]


def test_debug_that_cannot_be_installed_leaves_nothing(
    hvdchart: Command, running: FakeCluster, helm: StubProgram, kubectl: StubProgram
) -> None:
    helm.answer("get", json.dumps(VALUES))
    helm.answer("upgrade", errors="Error: exceeded quota: q", code=1)
    helm.answer("uninstall", errors="Error: uninstall: release: not found", code=1)
    done = hvdchart("debug", "hvd")
    assert done.code == 6
    assert "ask for a larger quota" in done.errors
    assert helm.commands()[-1] == "uninstall"
    assert kubectl.calls == []


def test_a_second_debug_is_refused(
    hvdchart: Command, running: FakeCluster, helm: StubProgram
) -> None:
    labels = {**LABELS, "app.kubernetes.io/instance": "hvd-debug"}
    running.put("statefulsets", {**STATEFUL_SET, "metadata": {"name": "d", "labels": labels}})
    done = hvdchart("debug", "hvd")
    assert done.code == 7
    assert "hvd-debug exists already, from another `hvdchart debug hvd`" in done.errors
    assert helm.calls == []
