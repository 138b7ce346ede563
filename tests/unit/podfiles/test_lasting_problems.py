"""Problems of pods that do not pass: how long they are waited for, and how they end a run."""

from __future__ import annotations

import re
import threading
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.common import errors, pod_problems
from hvd_pods.common.pod_problems import Diagnosis
from hvd_pods.master import hosts, kube, missing
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.fake_worker import Workers
from tests.unit.podfiles.rendezvous import (
    Background,
    StartRendezvous,
    fail_on_thread_exceptions,
    names,
)
from tests.unit.podfiles.threads import join_threads

pytestmark = fail_on_thread_exceptions
PULL = "ErrImagePull"
AWAY = "rpc error: code = Unavailable desc = dial tcp 10.0.0.1:443: connect: connection refused"
ABSENT = "rpc error: code = NotFound desc = registry.example/nope:1: not found"


def waiting_container(reason: str, message: str) -> dict[str, Any]:
    waiting = {"reason": reason, "message": message}
    return {"name": "worker", "image": "nope:1", "state": {"waiting": waiting}}


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the master waits minutes for, it waits a tenth of a second for."""
    table = {
        section: {
            sign: {**entry, "waitSeconds": 0.1} if entry.get("waitSeconds") else entry
            for sign, entry in entries.items()
        }
        for section, entries in pod_problems.known_problems().items()
    }
    monkeypatch.setattr(pod_problems, "known_problems", lambda: table)
    monkeypatch.setattr(pod_problems, "BAD_CONFIGURATION_WAIT_SECONDS", 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (waiting_container("InvalidImageName", "bad"), 78, "correct image.repository"),
        (waiting_container(PULL, AWAY), 1, "check image.repository"),
        (waiting_container("ImagePullBackOff", 'Back-off pulling image "nope:1"'), 1,
         "check image.repository"),
        (waiting_container(PULL, ABSENT), 78, "the registry has no such image"),
        (waiting_container("CreateContainerConfigError", 'secret "a" not found'), 78,
         "create the Secret"),
        ({"name": "worker", "image": "i", "state": {},
          "lastState": {"terminated": {"exitCode": 78, "message": "no sshd"}}}, 78, ""),
    ],
    ids=["name", "registry away", "back-off", "no image", "no Secret", "wrong configuration"],
)  # fmt: skip
def test_a_problem_that_does_not_pass_ends_the_attempt_long_before_the_deadline(
    workers: Workers,
    reports: None,
    short_waits: None,
    rendezvous: StartRendezvous,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
    status: dict[str, Any],
    code: int,
    remedy: str,
) -> None:
    """The exit code lets the Job try again where that may help."""
    # It ends as soon as the problem has lasted.
    monkeypatch.setattr(hosts, "STOP_CHECK_EVERY", 60.0)
    for ordinal in (0, 1):
        workers.create_pod(ordinal, containerStatuses=[status])
    with pytest.raises(errors.RunError) as raised:
        background(rendezvous(workers.run(3)).wait).result(TIMEOUT)
    lines = str(raised.value).splitlines()
    assert lines[0] == "3 of 3 hosts cannot start:"
    assert lines[1].startswith("  hvd-worker-[0-1] (2 hosts): ")
    assert lines[3:] == ([f"what to do: {lines[3][12:]}"] if remedy else [])
    assert remedy in str(raised.value)
    assert raised.value.exit_code == code


def test_only_a_wrong_image_name_is_not_waited_for() -> None:
    entries = pod_problems.known_problems()["container"]
    assert [sign for sign, entry in entries.items() if entry.get("waitSeconds") == 0] == [
        "InvalidImageName"
    ]
    # The kubelet has tried to pull five times by then: after 0, 10, 30, 70 and 150 s.
    assert (
        entries["ErrImagePull"]["waitSeconds"] == entries["ImagePullBackOff"]["waitSeconds"] == 180
    )


@pytest.mark.slow
def test_a_registry_that_comes_back_is_no_problem(
    workers: Workers,
    reports: None,
    short_waits: None,
    rendezvous: StartRendezvous,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time begins anew when the pod was well in between."""
    now = [1000.0]
    monkeypatch.setattr(missing, "time", SimpleNamespace(monotonic=lambda: now[0]))
    waiting = background(rendezvous(workers.run(1)).wait)

    def show(reason: str, message: str) -> None:
        workers.create_pod(0, containerStatuses=[waiting_container(reason, message)])
        checks = workers.checks()
        # The first of these has begun after the change, and has ended before the second.
        workers.api.wait(lambda: workers.checks() > checks + 1)

    show(PULL, AWAY)
    show("ContainerCreating", "")
    now[0] += 3600
    show(PULL, AWAY)
    assert not waiting.done()
    workers.start(0)
    assert names(waiting.result(TIMEOUT)) == ["hvd-worker-0"]


@pytest.mark.slow
def test_a_problem_is_announced_once_as_soon_as_it_is_seen(
    workers: Workers,
    reports: None,
    background: Background,
    host_threads: list[threading.Thread],
) -> None:
    announced: list[str] = []
    for ordinal in (0, 1):
        workers.create_pod(ordinal, containerStatuses=[waiting_container(PULL, AWAY)])
    current = hosts.HostRendezvous(workers.run(3), kube.Api(), lambda: False, announced.append)
    background(current.wait)
    workers.api.wait(lambda: workers.checks() > 3)
    current.close()
    join_threads(host_threads)
    (text,) = announced
    assert text.startswith(f"hvd-worker-[0-1] (2 hosts): ErrImagePull: {AWAY} (image nope:1); ")
    assert text.endswith("imagePullSecrets and that the registry answers")


def test_a_reason_that_no_attempt_can_help_ends_the_run_for_good_at_the_deadline(
    workers: Workers, rendezvous: StartRendezvous
) -> None:
    for ordinal in (0, 1):
        workers.create_pod(ordinal, containerStatuses=[waiting_container(PULL, ABSENT)])
    with pytest.raises(errors.ConfigurationError) as raised:
        rendezvous(workers.run(3, hostsTimeoutSeconds=0.05)).wait()
    lines = str(raised.value).splitlines()
    assert lines[1] == f"  hvd-worker-[0-1] (2 hosts): ErrImagePull: {ABSENT} (image nope:1)"
    assert lines[3].startswith("what to do: the registry has no such image: ")


def test_the_pod_of_a_node_that_is_gone_is_replaced_once_kubernetes_has_given_it_up(
    workers: Workers,
    rendezvous: StartRendezvous,
    background: Background,
    reports: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its kubelet does not confirm that it has ended: the StatefulSet waits for ever."""
    workers.start(0)
    workers.api.put("core/pods", leaving_pod(missing.GIVE_UP_AFTER + 5))
    waiting = background(rendezvous(workers.run()).wait)
    workers.api.wait(lambda: bool(workers.api.asked("DELETE", "core/pods/hvd-worker-1")))
    checks = workers.checks()
    # What a check has found is reported after it: a host that answers by then is left out.
    workers.api.wait(lambda: workers.checks() > checks)
    (request,) = workers.api.asked("DELETE", "core/pods/hvd-worker-1")
    assert request.body == {"preconditions": {"uid": "uid-1"}, "gracePeriodSeconds": 0}
    workers.start(1)
    assert names(waiting.result(TIMEOUT)) == ["hvd-worker-0", "hvd-worker-1"]
    output = capsys.readouterr().out
    assert re.search(r"hvd-worker-1 should have ended 6\d s ago on node-7: replacing it", output)
    assert "hvd-worker-1: terminating on node-7; it" in output, "with or without its address"


@pytest.mark.slow
def test_a_pod_that_is_ending_has_the_time_to_do_so(
    workers: Workers, rendezvous: StartRendezvous, reports: None
) -> None:
    workers.start(0)
    workers.api.put("core/pods", leaving_pod(missing.GIVE_UP_AFTER - 30))
    with pytest.raises(errors.RunError, match="terminating on node-7"):
        rendezvous(workers.run(hostsTimeoutSeconds=0.3)).wait()
    assert not workers.api.asked("DELETE", "core/pods/hvd-worker-1")


def leaving_pod(seconds: float) -> dict[str, Any]:
    """The pod hvd-worker-1, which should have ended that long ago."""
    until = datetime.fromtimestamp(time.time() - seconds, UTC)
    labels = {"horovod/revision": "r1", "app.kubernetes.io/instance": "hvd"}
    metadata = {
        "name": "hvd-worker-1", "uid": "uid-1", "labels": labels,
        "deletionTimestamp": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }  # fmt: skip
    spec = {"nodeName": "node-7"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def test_pod_that_is_well_hides_none_that_should_have_ended(workers: Workers) -> None:
    workers.create_pod(0, phase="Pending")
    workers.api.put("core/pods", leaving_pod(missing.GIVE_UP_AFTER + 5))
    run = workers.run(2)
    check = missing.PodCheck(run, kube.Api(), lambda: False)
    check.check(run.hosts, dict.fromkeys(run.hosts, "no answer"))
    assert [item["metadata"]["name"] for item in workers.api.items("core/pods")] == ["hvd-worker-0"]


def test_problem_lasts_when_its_wait_is_over(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing, "time", SimpleNamespace(monotonic=lambda: 110.0))
    run = workers.run(4)
    check = missing.PodCheck(run, None, lambda: False)
    first, second, third, fourth = run.hosts
    check._since = {first: 100.0, second: 100.0, third: 100.0}
    diagnoses = {
        first: Diagnosis("a", wait_seconds=10.0),
        second: Diagnosis("a", wait_seconds=10.5),
        third: Diagnosis("starts"),
        fourth: Diagnosis("wrong name", wait_seconds=0.0),
    }
    assert check.find_lasting(diagnoses) == [first, fourth]
