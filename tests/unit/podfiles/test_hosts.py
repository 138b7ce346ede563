"""The rendezvous of master and workers, over real sockets and a fake API server."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import hosts
import kube
import pytest
import settings

from tests.unit.podfiles import fake_api
from tests.unit.podfiles.fake_api import PATIENCE
from tests.unit.podfiles.fake_worker import SLICES, FakeWorker, Workers, ssh_banner

Background = Callable[..., "Future[Any]"]
# A thread of the rendezvous that ends with an exception fails the test.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


Start = Callable[..., hosts.HostRendezvous]


@pytest.fixture
def rendezvous() -> Iterator[Start]:
    """Starts a rendezvous, which the test's end closes."""
    started = []

    def start(run: settings.Run, stopped: threading.Event | None = None) -> hosts.HostRendezvous:
        is_stopped = stopped.is_set if stopped else lambda: False
        started.append(hosts.HostRendezvous(run, kube.Api() if run.api else None, is_stopped))
        return started[-1]

    yield start
    for item in started:
        item.close()


def names(answering: dict[settings.Host, str] | None) -> list[str]:
    return [host.name for host in answering or {}]


def fail_at_deadline(
    workers: Workers,
    background: Background,
    current: hosts.HostRendezvous,
    is_ready: Callable[[], bool],
) -> settings.RunError:
    """Wait for hosts in vain: let the deadline come once a condition on the requests holds."""
    waiting = background(current.wait)
    workers.api.wait(is_ready)
    current.deadline = 0.0
    with pytest.raises(settings.RunError) as raised:
        waiting.result(PATIENCE)
    return raised.value


def test_hosts_that_answer_at_once_are_returned_in_the_runs_order(
    workers: Workers,
    rendezvous: Start,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(hosts, "FIRST_REPORT_AFTER", 60.0)
    workers.start(2, 0, 1)
    stack = threading.stack_size()
    answering = rendezvous(workers.run(3)).wait()
    assert {host.name: address for host, address in answering.items()} == {
        f"hvd-worker-{ordinal}": workers.address(ordinal) for ordinal in range(3)
    }
    assert names(answering) == ["hvd-worker-0", "hvd-worker-1", "hvd-worker-2"]
    assert not [request for request in workers.api.requests if "pods" in request.path]
    assert capsys.readouterr().out == ""
    assert threading.stack_size() == stack
    join_host_threads()


def test_a_late_host_is_waited_for_and_reported(
    workers: Workers,
    rendezvous: Start,
    background: Background,
    capsys: pytest.CaptureFixture[str],
) -> None:
    workers.start(0)
    workers.create_pod(1, phase="Pending")
    waiting = background(rendezvous(workers.run()).wait)
    workers.api.wait(lambda: workers.reads(1) > 1)
    workers.start(1)
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
    rendezvous: Start,
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


def test_a_report_names_eight_hosts_and_counts_the_others(
    workers: Workers,
    rendezvous: Start,
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
    rendezvous: Start,
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
    rendezvous: Start,
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
    rendezvous: Start,
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

    def all_reasons_are_known() -> bool:
        known = {host.name: reason for host, reason in waiting.reasons.items()}
        return all(known.get(f"hvd-worker-{n}") == text for n, text in expected.items())

    error = fail_at_deadline(workers, background, waiting, all_reasons_are_known)
    assert str(error).splitlines() == [
        "4 of 5 hosts did not answer within launch.hostsTimeoutSeconds=60:",
        *(f"  hvd-worker-{n}: phase Running; {text}" for n, text in expected.items()),
        "  hvd-worker-4: the pod does not exist",
    ]
    assert error.exit_code == 1


def test_a_reason_that_no_attempt_can_help_ends_the_run_for_good(
    workers: Workers, rendezvous: Start
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


def test_the_deadline_ends_the_threads_of_a_run_that_is_not_elastic(
    workers: Workers, rendezvous: Start
) -> None:
    with pytest.raises(settings.RunError):
        rendezvous(workers.run(1, hostsTimeoutSeconds=0.05)).wait()
    join_host_threads()


def join_host_threads() -> None:
    for thread in threading.enumerate():
        if "_follow_host" in thread.name:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_waiting_ends_when_the_pod_is_asked_to_end(
    workers: Workers, rendezvous: Start, background: Background
) -> None:
    stopped = threading.Event()
    waiting = background(rendezvous(workers.run(), stopped).wait)
    workers.api.wait_for_watch(SLICES)
    stopped.set()
    with pytest.raises(settings.InterruptedRunError, match="asked to end") as raised:
        waiting.result(PATIENCE)
    assert raised.value.exit_code == 143


@pytest.mark.parametrize("seen_by", ["label", "banner"])
def test_a_worker_of_an_earlier_revision_is_replaced_once(
    workers: Workers,
    rendezvous: Start,
    background: Background,
    seen_by: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if seen_by == "label":
        workers.create_pod(0, "r0", phase="Pending")
    else:
        monkeypatch.setattr(hosts, "FIRST_REPORT_AFTER", 60.0)
        workers.start(0, revision="r0")
    waiting = background(rendezvous(workers.run(1)).wait)
    workers.api.wait(lambda: bool(workers.api.asked("DELETE", "core/pods/hvd-worker-0")))
    if seen_by == "banner":
        workers.stop(0)
    else:
        # A pod that takes long to terminate is not deleted again.
        workers.create_pod(0, "r0", phase="Pending")
        reads = workers.reads(0)
        workers.api.wait(lambda: workers.reads(0) > reads + 2)
    workers.start(0)
    assert names(waiting.result(PATIENCE)) == ["hvd-worker-0"]
    output = capsys.readouterr().out
    assert output.count("hvd-worker-0 is from before the last upgrade: replacing it") == 1
    if seen_by == "label":
        assert "hosts: hvd-worker-0: from before the last upgrade (" in output
    assert len(workers.api.asked("DELETE", "core/pods/hvd-worker-0")) == 1


@pytest.mark.parametrize(
    ("failure", "is_logged"),
    [(fake_api.status(403), True), (fake_api.reset, True), (fake_api.status(404), False)],
    ids=["403", "reset", "404"],
)
def test_a_stale_worker_that_cannot_be_deleted_is_logged_unless_it_is_gone(
    workers: Workers,
    rendezvous: Start,
    background: Background,
    failure: fake_api.Failure,
    is_logged: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    workers.start(0, revision="r0")
    workers.api.fail("DELETE", "core/pods", failure)
    error = fail_at_deadline(
        workers,
        background,
        rendezvous(workers.run(1)),
        lambda: bool(workers.api.asked("DELETE", "core/pods/hvd-worker-0")),
    )
    assert "from before the last upgrade" in str(error)
    join_host_threads()
    assert ("cannot replace hvd-worker-0" in capsys.readouterr().out) is is_logged


@pytest.mark.parametrize(
    "failure",
    [fake_api.status(503), fake_api.cut_answer, fake_api.reset],
    ids=["503", "cut", "reset"],
)
def test_a_pod_that_cannot_be_read_is_reported_and_waited_for(
    workers: Workers, rendezvous: Start, failure: fake_api.Failure
) -> None:
    workers.api.fail("GET", "core/pods", failure, times=100)
    with pytest.raises(settings.RunError) as raised:
        rendezvous(workers.run(1, hostsTimeoutSeconds=0.1)).wait()
    assert "hvd-worker-0: it has no address yet; its pod cannot be read: " in str(raised.value)


def test_workers_that_were_scaled_to_zero_are_scaled_up_again(
    workers: Workers, rendezvous: Start, capsys: pytest.CaptureFixture[str]
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


def test_why_a_pod_was_not_created_is_in_the_error(workers: Workers, rendezvous: Start) -> None:
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


def test_a_statefulset_that_cannot_be_read_is_reported(workers: Workers, rendezvous: Start) -> None:
    workers.api.fail("GET", "apps/statefulsets", fake_api.status(403, "no right"), times=100)
    with pytest.raises(settings.RunError, match="the pod does not exist: 403: no right"):
        rendezvous(workers.run(1, hostsTimeoutSeconds=0.05)).wait()


def test_an_elastic_run_starts_with_any_hosts_that_have_enough_slots(
    workers: Workers, rendezvous: Start
) -> None:
    workers.start(1, 3)
    answering = rendezvous(workers.run(2, maximum=4, mode="elastic")).wait()
    assert names(answering) == ["hvd-worker-1", "hvd-worker-3"]


def test_hosts_of_an_elastic_run_come_and_go(
    workers: Workers, rendezvous: Start, background: Background
) -> None:
    workers.start(0)
    elastic = rendezvous(workers.run(1, maximum=2, mode="elastic"))
    first = elastic.wait()
    # The deadline is for the start alone.
    elastic.deadline = 0.0
    assert names(first) == ["hvd-worker-0"]

    change = background(elastic.wait_for_change, first)
    workers.start(1)
    both = change.result(PATIENCE)
    assert names(both) == ["hvd-worker-0", "hvd-worker-1"]

    change = background(elastic.wait_for_change, both)
    workers.stop(1)
    assert names(change.result(PATIENCE)) == ["hvd-worker-0"]

    change = background(elastic.wait_for_change, first)
    workers.start(1)
    assert names(change.result(PATIENCE)) == ["hvd-worker-0", "hvd-worker-1"], "it may come back"


def test_a_host_of_an_elastic_run_may_come_back_at_another_address(
    workers: Workers, rendezvous: Start, background: Background
) -> None:
    workers.start(0)
    elastic = rendezvous(workers.run(1, mode="elastic"))
    first = elastic.wait()
    change = background(elastic.wait_for_change, first)
    workers.listen(0, ssh_banner("r1"), "127.0.1.9")
    workers.publish(0, "127.0.1.9")
    now = change.result(PATIENCE)
    if not now:
        now = background(elastic.wait_for_change, now).result(PATIENCE)
    assert list(now.values()) == ["127.0.1.9"]


def test_a_closed_rendezvous_ends_its_threads_and_whoever_waits_for_a_change(
    workers: Workers, rendezvous: Start, background: Background
) -> None:
    workers.start(0)
    elastic = rendezvous(workers.run(1, maximum=3, mode="elastic"))
    change = background(elastic.wait_for_change, elastic.wait())
    threads = [item for item in threading.enumerate() if "_follow" in item.name]
    assert len(threads) == 3
    assert all(thread.daemon for thread in threads), "they do not keep the process running"
    elastic.close()
    assert change.result(PATIENCE) is None
    join_host_threads()


@pytest.mark.parametrize(
    "failure", [fake_api.status(403), fake_api.reset, None], ids=["403", "reset", "no API"]
)
def test_without_endpointslices_hosts_are_found_through_dns(
    workers: Workers,
    rendezvous: Start,
    failure: fake_api.Failure | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    resolve = socket.getaddrinfo

    def in_cluster(name: str, *arguments: Any, **options: Any) -> Any:
        known = {"hvd-worker-0.hvd": workers.address(0), "hvd-worker-1.hvd": workers.address(1)}
        return resolve(known.get(name, name), *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", in_cluster)
    workers.start(0, 1)
    if failure:
        workers.api.fail("GET", SLICES, failure)
    answering = rendezvous(workers.run(2, api=failure is not None)).wait()
    assert list(answering.values()) == [workers.address(0), workers.address(1)]
    logged = "asking DNS for the hosts instead" in capsys.readouterr().out
    assert logged is (failure is not None)


def test_without_the_api_the_reason_is_what_the_connection_met(
    workers: Workers, rendezvous: Start
) -> None:
    with pytest.raises(settings.RunError) as raised:
        rendezvous(workers.run(1, api=False, hostsTimeoutSeconds=0.1)).wait()
    assert "hvd-worker-0: its name does not resolve" in str(raised.value)
    assert not workers.api.requests


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.parametrize(
    ("banner", "answer"),
    [
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2 hvd-r1\r\n", None),
        (
            b"SSH-2.0-OpenSSH_9.2p1 hvd-r0\r\n",
            "from before the last upgrade: WHERE sent 'SSH-2.0-OpenSSH_9.2p1 hvd-r0', "
            "this run needs hvd-r1",
        ),
        (b"HTTP/1.1 400\r\n", "WHERE is not an SSH server: it sent 'HTTP/1.1 400'"),
        (b"\xff" * 300, "WHERE is not an SSH server: it sent '" + "\ufffd" * 256 + "'"),
        (b"", "WHERE is not an SSH server: it sent ''"),
        (None, "WHERE does not answer: timed out"),
    ],
    ids=["right", "stale", "HTTP", "binary", "nothing", "silent"],
)
def test_probe(
    address: str, banner: bytes | None, answer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if banner is None:
        monkeypatch.setattr(hosts, "PROBE_TIMEOUT", 0.1)
    with FakeWorker(banner, address) as worker:
        where = f"[::1]:{worker.port}" if address == "::1" else f"127.0.0.1:{worker.port}"
        expected = answer and answer.replace("WHERE", where)
        assert hosts.probe(address, worker.port, "r1") == expected


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_probe_of_a_closed_port(address: str) -> None:
    with FakeWorker(b"", address) as worker:
        worker.close()
    where = f"[::1]:{worker.port}" if address == "::1" else f"127.0.0.1:{worker.port}"
    expected = f"{where} does not answer: Connection refused"
    assert hosts.probe(address, worker.port, "r1") == expected
