"""What the rendezvous logs while hosts are missing, and the error at the deadline."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest

from hvd_pods.common import errors, run
from hvd_pods.master import hosts, kube, missing, probing
from tests.fakes import faults
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.fake_worker import SLICES, Workers, ssh_banner
from tests.unit.podfiles.rendezvous import (
    Background,
    StartRendezvous,
    fail_at_deadline,
    fail_on_thread_exceptions,
    names,
)

pytestmark = fail_on_thread_exceptions


@pytest.mark.slow
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
            assert current.changed.wait_for(lambda: bool(current.answering), TIMEOUT)
        return False

    current = rendezvous(workers.run(), wait_for_host_0)
    waiting = background(current.wait)
    workers.api.wait(lambda: workers.checks() > 4)
    workers.listen(1, ssh_banner("r1"))
    workers.publish(1)
    assert names(waiting.result(TIMEOUT)) == ["hvd-worker-0", "hvd-worker-1"]
    # The host may also be reported with its address, before it answers.
    lines = [line for line in capsys.readouterr().out.splitlines() if "no address" in line]
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
    current = rendezvous(workers.run(1))
    waiting = background(current.wait)
    refused = f"port {workers.port} does not answer: Connection refused"
    workers.api.wait(lambda: list(current.reasons.values()) == [refused])
    checks = workers.checks()
    # The first of these has begun after the attempt, and is reported before the second.
    workers.api.wait(lambda: workers.checks() > checks + 1)
    workers.listen(0, ssh_banner("r1"))
    assert names(waiting.result(TIMEOUT)) == ["hvd-worker-0"]
    assert f"phase Running; {refused}" in capsys.readouterr().out


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
    assert names(waiting.result(TIMEOUT)) == ["hvd-worker-0"]
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
    workers: Workers, rendezvous: StartRendezvous, background: Background
) -> None:
    stateful_set = {"metadata": {"name": "hvd-worker"}, "spec": {"replicas": 1000}}
    workers.api.put("apps/statefulsets", stateful_set)
    for ordinal in range(0, 1000, 2):
        workers.create_pod(ordinal, phase=f"Phase {ordinal}" if ordinal < 40 else "Pending")
    waiting = rendezvous(workers.run(1000))
    error = fail_at_deadline(workers, background, waiting, lambda: is_followed(workers))
    lines = str(error).splitlines()
    assert lines[0].startswith("1000 of 1000 hosts did not answer")
    assert lines[1] == "  hvd-worker-0: phase Phase 0; it has no address yet"
    assert lines[-1] == "  and 493 more, for other reasons"
    assert len(str(error).encode()) < 2000
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


def is_followed(workers: Workers) -> bool:
    """Whether the addresses have been read: until then, a host has no name."""
    return bool(workers.api.watches(SLICES))


def test_hosts_are_named_as_ranges_of_each_group() -> None:
    def some(group: str, *ordinals: int) -> list[run.Host]:
        return [run.Host(f"{group}-{n}", "", 1, group, "r1") for n in ordinals]

    assert missing.format_hosts(some("a", 3)) == "a-3"
    assert missing.format_hosts(some("a", 0, 1, 2, 7)) == "a-[0-2,7] (4 hosts)"
    mixed = [*some("a-1", 0, 1), *some("b", 4)]
    assert missing.format_hosts(mixed) == "a-1-[0-1], b-4 (3 hosts)"
    many = missing.format_hosts(some("a", *range(0, 2000, 2)))
    assert many == "a-[0,2,4,6,8,10,12,14,...] (1000 hosts)"
    groups = [host for n in range(50) for host in some(f"g{n}", 0)]
    assert missing.format_hosts(groups).endswith("g7-0 and other groups (50 hosts)")
    eight = missing.format_hosts(some("a", *range(0, 16, 2)))
    assert eight == "a-[0,2,4,6,8,10,12,14] (8 hosts)"
    assert missing.format_hosts(groups[:8]).endswith("g6-0, g7-0 (8 hosts)")


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "failure",
    [faults.status(503), faults.cut_answer, faults.reset],
    ids=["503", "cut", "reset"],
)
def test_a_pod_that_cannot_be_read_is_reported_and_waited_for(
    workers: Workers,
    rendezvous: StartRendezvous,
    background: Background,
    failure: faults.Failure,
) -> None:
    workers.api.fail("GET", "core/pods", failure, times=100)
    waiting = rendezvous(workers.run(1))
    error = fail_at_deadline(workers, background, waiting, lambda: is_followed(workers))
    assert "hvd-worker-0: it has no address yet; cannot read pods: " in str(error)


@pytest.mark.slow
def test_workers_that_were_scaled_to_zero_are_scaled_up_again(
    workers: Workers, rendezvous: StartRendezvous, capsys: pytest.CaptureFixture[str]
) -> None:
    workers.api.put(
        "apps/statefulsets", {"metadata": {"name": "hvd-worker"}, "spec": {"replicas": 0}}
    )
    run = workers.run(2, maximum=4, mode="elastic", hostsTimeoutSeconds=0.1)
    with pytest.raises(errors.RunError, match="2 of 2 hosts did not answer"):
        rendezvous(run).wait()
    (patch,) = workers.api.asked("PATCH", "apps/statefulsets/hvd-worker/scale")
    assert patch.body == {"spec": {"replicas": 2}}, "optional hosts are the autoscaler's business"
    assert "hvd-worker had 0 workers: scaled to 2\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("current", "changes", "scaled"),
    [(1, {}, [3]), (2, {}, []), (1, {"mode": "elastic"}, [])],
    ids=["fewer than it needs", "those of helm test", "elastic"],
)
def test_workers_that_a_gitops_tool_left_alone_are_created_while_they_are_waited_for(
    workers: Workers, current: int, changes: dict[str, Any], scaled: list[int]
) -> None:
    """The API server was away when the attempt began."""
    item = {"metadata": {"name": "hvd-worker"}, "spec": {"replicas": current}}
    workers.api.put("apps/statefulsets", item)
    run = workers.run(2, maximum=3, **changes)
    check = missing.PodCheck(run, kube.Api(), lambda: False)
    check.check(run.hosts, dict.fromkeys(run.hosts, "no answer"))
    asked = workers.api.asked("PATCH", "apps/statefulsets/hvd-worker/scale")
    assert [request.body for request in asked] == [{"spec": {"replicas": n}} for n in scaled]


@pytest.mark.parametrize("is_over", [True, False])
def test_workers_that_a_suspension_took_away_are_not_created_again(
    workers: Workers, is_over: bool
) -> None:
    """The master is asked to end a moment later, or still ends its ranks."""
    item = {"metadata": {"name": "hvd-worker"}, "spec": {"replicas": 0}}
    workers.api.put("apps/statefulsets", item)
    run = workers.run(2)
    check = missing.PodCheck(run, kube.Api(), lambda: is_over)
    diagnoses = check.check(run.hosts, dict.fromkeys(run.hosts, "no answer"))
    assert {item.reason for item in diagnoses.values()} == {"the pod does not exist"}
    asked = workers.api.asked("PATCH", "apps/statefulsets/hvd-worker/scale")
    assert len(asked) == int(not is_over)


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
    with pytest.raises(errors.ConfigurationError) as raised:
        rendezvous(workers.run(1, hostsTimeoutSeconds=0.05)).wait()
    lines = str(raised.value).splitlines()
    assert lines[1] == f"  hvd-worker-0: the pod does not exist: {message}"
    assert lines[2].startswith("what to do: correct priorityClassName")


def test_a_statefulset_that_cannot_be_read_is_reported(
    workers: Workers, rendezvous: StartRendezvous
) -> None:
    workers.api.fail("GET", "apps/statefulsets", faults.status(403, "no right"), times=100)
    with pytest.raises(errors.RunError, match="the pod does not exist: 403: no right"):
        rendezvous(workers.run(1, hostsTimeoutSeconds=0.05)).wait()


@pytest.mark.slow
def test_without_the_api_the_reason_is_what_the_connection_met(
    workers: Workers, rendezvous: StartRendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(errors.RunError) as raised:
        rendezvous(workers.run(1, api=False, hostsTimeoutSeconds=0.1)).wait()
    assert "hvd-worker-0: its name does not resolve" in str(raised.value)
    assert not workers.api.requests
