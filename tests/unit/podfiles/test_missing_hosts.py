"""What the rendezvous logs while hosts are missing, and the error at the deadline."""

from __future__ import annotations

import re
import socket
import threading
import time
from datetime import UTC, datetime
from typing import Any

import hosts
import kube
import missing
import podstatus
import probing
import pytest
import settings

from tests.fakes import faults
from tests.fakes.faults import PATIENCE
from tests.unit.podfiles.fake_worker import Workers, ssh_banner
from tests.unit.podfiles.rendezvous import (
    Background,
    StartRendezvous,
    fail_at_deadline,
    fail_on_thread_exceptions,
    names,
)
from tests.unit.podfiles.threads import join_threads

pytestmark = fail_on_thread_exceptions


def test_a_late_host_is_waited_for_and_reported(
    workers: Workers,
    reports: None,
    rendezvous: StartRendezvous,
    background: Background,
    capsys: pytest.CaptureFixture[str],
) -> None:
    workers.start(0)
    workers.create_pod(1, phase="Pending")
    current: hosts.HostRendezvous

    def wait_for_host_0() -> bool:
        """The rendezvous asks before each report whether the pod is to end."""
        with current.changed:
            assert current.changed.wait_for(lambda: bool(current.answering), PATIENCE)
        return False

    current = rendezvous(workers.run(), wait_for_host_0)
    waiting = background(current.wait)
    workers.api.wait(lambda: workers.checks() > 1)
    workers.listen(1, ssh_banner("r1"))
    workers.publish(1)
    assert names(waiting.result(PATIENCE)) == ["hvd-worker-0", "hvd-worker-1"]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1, "an unchanged report is not repeated"
    assert re.fullmatch(
        r"\[hvd .*\] waiting for 1 of 2 hosts: "
        r"hvd-worker-1: phase Pending; it has no address yet \((60|5\d) s left\)",
        lines[0],
    )


def test_a_worker_that_listens_late_is_tried_again(
    workers: Workers,
    reports: None,
    rendezvous: StartRendezvous,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    workers.create_pod(0, phase="Running")
    workers.publish(0)
    waiting = background(rendezvous(workers.run(1)).wait)
    workers.api.wait(lambda: workers.checks() > 1)
    workers.listen(0, ssh_banner("r1"))
    assert names(waiting.result(PATIENCE)) == ["hvd-worker-0"]
    where = f"port {workers.port}"
    assert f"phase Running; {where} does not answer: Connection refused" in capsys.readouterr().out


def test_the_time_in_a_queue_does_not_count(
    workers: Workers,
    reports: None,
    rendezvous: StartRendezvous,
    background: Background,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    workers.create_pod(0, conditions=[gated])
    current = rendezvous(workers.run(1))
    before = current.deadline
    waiting = background(current.wait)
    workers.api.wait(lambda: workers.checks() > 1)
    assert current.deadline > before, "it begins when the queue has admitted the pod"
    workers.listen(0, ssh_banner("r1"))
    workers.publish(0)
    assert names(waiting.result(PATIENCE)) == ["hvd-worker-0"]
    assert "hvd-worker-0: in a queue" in capsys.readouterr().out


def test_hosts_that_are_missing_for_one_reason_are_reported_together(
    workers: Workers,
    reports: None,
    rendezvous: StartRendezvous,
    background: Background,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for ordinal in (0, 1, 2, 5):
        workers.create_pod(ordinal, phase="Pending")
    waiting = rendezvous(workers.run(7))
    error = fail_at_deadline(workers, background, waiting, lambda: workers.checks() > 1)
    lines = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()]
    expected = (
        "waiting for 7 of 7 hosts: hvd-worker-[0-2,5] (4 hosts): phase Pending; it has no address "
        "yet; hvd-worker-[3-4,6] (3 hosts): the pod does not exist ("
    )
    assert any(line.startswith(expected) for line in lines), lines
    assert str(error).splitlines()[1:] == [
        "  hvd-worker-[0-2,5] (4 hosts): phase Pending; it has no address yet",
        "  hvd-worker-[3-4,6] (3 hosts): the pod does not exist",
    ]


def test_a_thousand_missing_hosts_cost_one_list_and_a_short_message(
    workers: Workers, rendezvous: StartRendezvous
) -> None:
    for ordinal in range(0, 1000, 2):
        workers.create_pod(ordinal, phase=f"Phase {ordinal}" if ordinal < 40 else "Pending")
    with pytest.raises(settings.RunError) as raised:
        rendezvous(workers.run(1000, hostsTimeoutSeconds=0.05)).wait()
    lines = str(raised.value).splitlines()
    assert lines[0].startswith("1000 of 1000 hosts did not answer")
    assert lines[1] == "  hvd-worker-0: phase Phase 0; it has no address yet"
    assert lines[-1] == "  and 493 more, for other reasons"
    assert len(str(raised.value).encode()) < 2000
    # The slices are listed and watched; the pods are one list of two pages at most.
    asked = [item for item in workers.api.requests if "endpointslices" not in item.path]
    paths = [item.path for item in asked]
    assert paths.count("core/pods") == 1
    assert sorted(set(paths) - {"core/pods"}) == [
        "apps/statefulsets/hvd-worker/scale",
        "core/events",
    ]
    assert len(paths) == 3
    (selector,) = {item.query.get("labelSelector") for item in asked if item.path == "core/pods"}
    assert selector == "app.kubernetes.io/instance=hvd"


def test_hosts_are_named_as_ranges_of_each_group() -> None:
    def some(group: str, *ordinals: int) -> list[settings.Host]:
        return [settings.Host(f"{group}-{n}", "", 1, group, "r1") for n in ordinals]

    assert missing.format_hosts(some("a", 3)) == "a-3"
    assert missing.format_hosts(some("a", 0, 1, 2, 7)) == "a-[0-2,7] (4 hosts)"
    mixed = [*some("a-1", 0, 1), *some("b", 4)]
    assert missing.format_hosts(mixed) == "a-1-[0-1], b-4 (3 hosts)"
    many = missing.format_hosts(some("a", *range(0, 2000, 2)))
    assert many == "a-[0,2,4,6,8,10,12,14,...] (1000 hosts)"
    groups = [host for n in range(50) for host in some(f"g{n}", 0)]
    assert missing.format_hosts(groups).endswith("g7-0 and other groups (50 hosts)")


def test_an_unchanged_report_is_repeated_after_a_while(
    workers: Workers,
    reports: None,
    rendezvous: StartRendezvous,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(hosts, "REPEAT_REPORT_AFTER", 0.0)
    waiting = rendezvous(workers.run(1))
    fail_at_deadline(workers, background, waiting, lambda: workers.checks() > 3)
    assert capsys.readouterr().out.count("waiting for 1 of 1 hosts") > 1


def test_a_missing_host_fails_the_run_at_the_deadline_with_every_reason(
    workers: Workers,
    reports: None,
    rendezvous: StartRendezvous,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probing, "PROBE_TIMEOUT", 0.3)
    workers.start(0)
    workers.listen(1, b"HTTP/1.1 400\r\n")
    workers.listen(2, None)
    for ordinal in (1, 2, 3):
        workers.create_pod(ordinal, phase="Running")
        workers.publish(ordinal)
    waiting = rendezvous(workers.run(5))
    expected = {
        1: f"port {workers.port} is not an SSH server: it sent 'HTTP/1.1 400'",
        2: f"port {workers.port} does not answer: timed out",
        3: f"port {workers.port} does not answer: Connection refused",
    }

    def answers_and_reasons_are_known() -> bool:
        known = {host.name: reason for host, reason in waiting.reasons.items()}
        has_reasons = all(known.get(f"hvd-worker-{n}") == text for n, text in expected.items())
        return has_reasons and len(waiting.answering) == 1

    error = fail_at_deadline(workers, background, waiting, answers_and_reasons_are_known)
    assert str(error).splitlines() == [
        "4 of 5 hosts did not answer within launch.hostsTimeoutSeconds=60:",
        *(f"  hvd-worker-{n}: phase Running; {text}" for n, text in expected.items()),
        "  hvd-worker-4: the pod does not exist",
    ]
    assert error.exit_code == 1


PULL = "ErrImagePull"
AWAY = "rpc error: code = Unavailable desc = dial tcp 10.0.0.1:443: connect: connection refused"
ABSENT = "rpc error: code = NotFound desc = registry.example/nope:1: not found"


def waiting_container(reason: str, message: str) -> dict[str, Any]:
    waiting = {"reason": reason, "message": message}
    return {"name": "worker", "image": "nope:1", "state": {"waiting": waiting}}


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the master waits minutes for, it waits a tenth of a second for."""
    table = {
        section: {
            sign: {**entry, "patience": 0.1} if entry.get("patience") else entry
            for sign, entry in entries.items()
        }
        for section, entries in podstatus.known_problems().items()
    }
    monkeypatch.setattr(podstatus, "known_problems", lambda: table)
    monkeypatch.setattr(podstatus, "BAD_CONFIGURATION_PATIENCE", 0.1)


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
    short_patience: None,
    rendezvous: StartRendezvous,
    background: Background,
    status: dict[str, Any],
    code: int,
    remedy: str,
) -> None:
    """The exit code lets the Job try again where that may help."""
    for ordinal in (0, 1):
        workers.create_pod(ordinal, containerStatuses=[status])
    with pytest.raises(settings.RunError) as raised:
        background(rendezvous(workers.run(3)).wait).result(PATIENCE)
    lines = str(raised.value).splitlines()
    assert lines[0] == "3 of 3 hosts cannot start:"
    assert lines[1].startswith("  hvd-worker-[0-1] (2 hosts): ")
    assert lines[3:] == ([f"what to do: {lines[3][12:]}"] if remedy else [])
    assert remedy in str(raised.value)
    assert raised.value.exit_code == code


def test_only_a_wrong_image_name_is_not_waited_for() -> None:
    entries = podstatus.known_problems()["container"]
    assert [sign for sign, entry in entries.items() if entry.get("patience") == 0] == [
        "InvalidImageName"
    ]
    # The kubelet has tried to pull five times by then: after 0, 10, 30, 70 and 150 s.
    assert entries["ErrImagePull"]["patience"] == entries["ImagePullBackOff"]["patience"] == 180


def test_a_registry_that_comes_back_is_no_problem(
    workers: Workers,
    reports: None,
    short_patience: None,
    rendezvous: StartRendezvous,
    background: Background,
) -> None:
    """The patience begins anew when the pod was well in between."""
    workers.create_pod(0, containerStatuses=[waiting_container(PULL, AWAY)])
    waiting = background(rendezvous(workers.run(1)).wait)
    workers.api.wait(lambda: workers.checks() > 1)
    workers.create_pod(0, containerStatuses=[waiting_container("ContainerCreating", "")])
    checks = workers.checks()
    workers.api.wait(lambda: workers.checks() > checks + 10)
    assert not waiting.done()
    workers.start(0)
    assert names(waiting.result(PATIENCE)) == ["hvd-worker-0"]


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
    with pytest.raises(settings.ConfigurationError) as raised:
        rendezvous(workers.run(3, hostsTimeoutSeconds=0.05)).wait()
    lines = str(raised.value).splitlines()
    assert lines[1] == f"  hvd-worker-[0-1] (2 hosts): ErrImagePull: {ABSENT} (image nope:1)"
    assert lines[3].startswith("what to do: the registry has no such image: ")


@pytest.mark.parametrize(
    "failure",
    [faults.status(503), faults.cut_answer, faults.reset],
    ids=["503", "cut", "reset"],
)
def test_a_pod_that_cannot_be_read_is_reported_and_waited_for(
    workers: Workers, rendezvous: StartRendezvous, failure: faults.Failure
) -> None:
    workers.api.fail("GET", "core/pods", failure, times=100)
    with pytest.raises(settings.RunError) as raised:
        rendezvous(workers.run(1, hostsTimeoutSeconds=0.1)).wait()
    assert "hvd-worker-0: it has no address yet; pods cannot be read: " in str(raised.value)


def test_workers_that_were_scaled_to_zero_are_scaled_up_again(
    workers: Workers, rendezvous: StartRendezvous, capsys: pytest.CaptureFixture[str]
) -> None:
    workers.api.put(
        "apps/statefulsets", {"metadata": {"name": "hvd-worker"}, "spec": {"replicas": 0}}
    )
    run = workers.run(2, maximum=4, mode="elastic", hostsTimeoutSeconds=0.1)
    with pytest.raises(settings.RunError, match="2 of 2 hosts did not answer"):
        rendezvous(run).wait()
    (patch,) = workers.api.asked("PATCH", "apps/statefulsets/hvd-worker/scale")
    assert patch.body == {"spec": {"replicas": 2}}, "optional hosts are the autoscaler's business"
    assert "hvd-worker had 0 workers: scaled to 2\n" in capsys.readouterr().out


def test_why_a_pod_was_not_created_is_in_the_error(
    workers: Workers, rendezvous: StartRendezvous
) -> None:
    about = {"kind": "StatefulSet", "name": "hvd-worker"}
    message = 'pods "hvd-worker-0" is forbidden: no PriorityClass with name high was found'
    workers.api.put(
        "core/events",
        {
            "metadata": {"name": "e"},
            "involvedObject": about,
            "reason": "FailedCreate",
            "message": message,
        },
    )
    with pytest.raises(settings.ConfigurationError) as raised:
        rendezvous(workers.run(1, hostsTimeoutSeconds=0.05)).wait()
    lines = str(raised.value).splitlines()
    assert lines[1] == f"  hvd-worker-0: the pod does not exist: {message}"
    assert lines[2].startswith("what to do: correct priorityClassName")


def test_a_statefulset_that_cannot_be_read_is_reported(
    workers: Workers, rendezvous: StartRendezvous
) -> None:
    workers.api.fail("GET", "apps/statefulsets", faults.status(403, "no right"), times=100)
    with pytest.raises(settings.RunError, match="the pod does not exist: 403: no right"):
        rendezvous(workers.run(1, hostsTimeoutSeconds=0.05)).wait()


def test_without_the_api_the_reason_is_what_the_connection_met(
    workers: Workers, rendezvous: StartRendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(settings.RunError) as raised:
        rendezvous(workers.run(1, api=False, hostsTimeoutSeconds=0.1)).wait()
    assert "hvd-worker-0: its name does not resolve" in str(raised.value)
    assert not workers.api.requests


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
    assert names(waiting.result(PATIENCE)) == ["hvd-worker-0", "hvd-worker-1"]
    output = capsys.readouterr().out
    assert re.search(r"hvd-worker-1 should have ended 6\d s ago on node-7: replacing it", output)
    assert "hvd-worker-1: terminating on node-7; it has no address yet" in output


def test_a_pod_that_is_ending_has_the_time_to_do_so(
    workers: Workers, rendezvous: StartRendezvous, reports: None
) -> None:
    workers.start(0)
    workers.api.put("core/pods", leaving_pod(missing.GIVE_UP_AFTER - 30))
    with pytest.raises(settings.RunError, match="terminating on node-7"):
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
