"""What the rendezvous logs while hosts are missing, and the error at the deadline."""

from __future__ import annotations

import re
import socket

import hosts
import pytest
import settings

from tests.unit.podfiles import faults
from tests.unit.podfiles.fake_worker import Workers, ssh_banner
from tests.unit.podfiles.faults import PATIENCE
from tests.unit.podfiles.rendezvous import (
    Background,
    StartRendezvous,
    fail_at_deadline,
    fail_on_thread_exceptions,
    names,
)

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
    workers.api.wait(lambda: workers.reads(1) > 1)
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
    assert not workers.api.asked("GET", "core/pods/hvd-worker-0")


def test_a_worker_that_listens_late_is_tried_again(
    workers: Workers,
    reports: None,
    rendezvous: StartRendezvous,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # A host that has an address is tried more often than one without.
    monkeypatch.setattr(hosts, "ADDRESS_CHECK_EVERY", 60.0)
    workers.create_pod(0, phase="Running")
    workers.publish(0)
    waiting = background(rendezvous(workers.run(1)).wait)
    workers.api.wait(lambda: workers.reads(0) > 1)
    workers.listen(0, ssh_banner("r1"))
    assert names(waiting.result(PATIENCE)) == ["hvd-worker-0"]
    where = f"127.0.1.1:{workers.port}"
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
    workers.api.wait(lambda: workers.reads(0) > 1)
    assert current.deadline > before, "it begins when the queue has admitted the pod"
    workers.listen(0, ssh_banner("r1"))
    workers.publish(0)
    assert names(waiting.result(PATIENCE)) == ["hvd-worker-0"]
    assert "hvd-worker-0: in a queue" in capsys.readouterr().out


def test_a_report_names_eight_hosts_and_counts_the_others(
    workers: Workers,
    reports: None,
    rendezvous: StartRendezvous,
    background: Background,
    capsys: pytest.CaptureFixture[str],
) -> None:
    waiting = rendezvous(workers.run(10))
    error = fail_at_deadline(workers, background, waiting, lambda: workers.reads(7) > 1)
    assert "\n  hvd-worker-9: " in str(error), "the error names every host"
    line = capsys.readouterr().out.splitlines()[0]
    assert "waiting for 10 of 10 hosts: hvd-worker-0: the pod does not exist; " in line
    assert "; hvd-worker-7: the pod does not exist; and 2 more (" in line
    assert "hvd-worker-8" not in line


def test_a_report_of_eight_hosts_counts_no_others(
    workers: Workers,
    reports: None,
    rendezvous: StartRendezvous,
    background: Background,
    capsys: pytest.CaptureFixture[str],
) -> None:
    waiting = rendezvous(workers.run(8))
    fail_at_deadline(workers, background, waiting, lambda: workers.reads(7) > 1)
    output = capsys.readouterr().out
    assert "waiting for 8 of 8 hosts" in output
    assert " more" not in output


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
    fail_at_deadline(workers, background, waiting, lambda: workers.reads(0) > 3)
    assert capsys.readouterr().out.count("waiting for 1 of 1 hosts") > 1


def test_a_missing_host_fails_the_run_at_the_deadline_with_every_reason(
    workers: Workers,
    reports: None,
    rendezvous: StartRendezvous,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosts, "PROBE_TIMEOUT", 0.3)
    workers.start(0)
    workers.listen(1, b"HTTP/1.1 400\r\n")
    workers.listen(2, None)
    for ordinal in (1, 2, 3):
        workers.create_pod(ordinal, phase="Running")
        workers.publish(ordinal)
    waiting = rendezvous(workers.run(5))
    expected = {
        1: f"127.0.1.2:{workers.port} is not an SSH server: it sent 'HTTP/1.1 400'",
        2: f"127.0.1.3:{workers.port} does not answer: timed out",
        3: f"127.0.1.4:{workers.port} does not answer: Connection refused",
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


def test_a_reason_that_no_attempt_can_help_ends_the_run_for_good(
    workers: Workers, rendezvous: StartRendezvous
) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    container = {"name": "worker", "image": "nope:1", "state": {"waiting": waiting}}
    for ordinal in (0, 1):
        workers.create_pod(ordinal, containerStatuses=[container])
    with pytest.raises(settings.ConfigurationError) as raised:
        rendezvous(workers.run(3, hostsTimeoutSeconds=0.05)).wait()
    lines = str(raised.value).splitlines()
    assert lines[2].startswith("  hvd-worker-1: ImagePullBackOff: not found (image nope:1); ")
    assert lines[4:] == ["what to do: check image.repository, image.tag and imagePullSecrets"]


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
    assert "hvd-worker-0: it has no address yet; its pod cannot be read: " in str(raised.value)


def test_workers_that_were_scaled_to_zero_are_scaled_up_again(
    workers: Workers, rendezvous: StartRendezvous, capsys: pytest.CaptureFixture[str]
) -> None:
    workers.api.put(
        "apps/statefulsets", {"metadata": {"name": "hvd-worker"}, "spec": {"replicas": 0}}
    )
    run = workers.run(2, maximum=4, mode="elastic", hostsTimeoutSeconds=0.1)
    with pytest.raises(settings.RunError, match="2 of 4 hosts did not answer"):
        rendezvous(run).wait()
    (patch,) = workers.api.asked("PATCH", "apps/statefulsets/hvd-worker/scale")
    assert patch.body == {"spec": {"replicas": 2}}, "optional hosts are the autoscaler's business"
    assert "hvd-worker was scaled to 0: scaling it up again" in capsys.readouterr().out


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
