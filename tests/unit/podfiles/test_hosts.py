"""The rendezvous of master and workers, over real sockets and a fake API server."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
import settings

from tests.unit.podfiles import faults
from tests.unit.podfiles.fake_worker import SLICES, Workers, ssh_banner
from tests.unit.podfiles.faults import PATIENCE
from tests.unit.podfiles.rendezvous import (
    Background,
    StartRendezvous,
    fail_at_deadline,
    fail_on_thread_exceptions,
    names,
)
from tests.unit.podfiles.threads import join_threads

pytestmark = fail_on_thread_exceptions


def test_hosts_that_answer_at_once_are_returned_in_the_runs_order(
    workers: Workers,
    rendezvous: StartRendezvous,
    host_threads: list[threading.Thread],
    capsys: pytest.CaptureFixture[str],
) -> None:
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
    assert len(host_threads) == 3
    join_threads(host_threads)


def test_the_deadline_ends_the_threads_of_a_run_that_is_not_elastic(
    workers: Workers, rendezvous: StartRendezvous, host_threads: list[threading.Thread]
) -> None:
    with pytest.raises(settings.RunError):
        rendezvous(workers.run(1, hostsTimeoutSeconds=0.05)).wait()
    assert len(host_threads) == 1
    join_threads(host_threads)


def test_waiting_ends_when_the_pod_is_asked_to_end(
    workers: Workers, rendezvous: StartRendezvous, background: Background
) -> None:
    stopped = threading.Event()
    waiting = background(rendezvous(workers.run(), stopped.is_set).wait)
    workers.api.wait_for_watch(SLICES)
    stopped.set()
    with pytest.raises(settings.InterruptedRunError, match="asked to end") as raised:
        waiting.result(PATIENCE)
    assert raised.value.exit_code == 143


@pytest.mark.parametrize("seen_by", ["label", "banner"])
def test_a_worker_of_an_earlier_revision_is_replaced_once(
    workers: Workers,
    rendezvous: StartRendezvous,
    background: Background,
    seen_by: str,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    if seen_by == "label":
        # Pods are read for reports only.
        request.getfixturevalue("reports")
        workers.create_pod(0, "r0", phase="Pending")
    else:
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
    [(faults.status(403), True), (faults.reset, True), (faults.status(404), False)],
    ids=["403", "reset", "404"],
)
def test_a_stale_worker_that_cannot_be_deleted_is_logged_unless_it_is_gone(
    workers: Workers,
    rendezvous: StartRendezvous,
    background: Background,
    host_threads: list[threading.Thread],
    failure: faults.Failure,
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
    assert host_threads
    join_threads(host_threads)
    assert ("cannot replace hvd-worker-0" in capsys.readouterr().out) is is_logged


def test_an_elastic_run_starts_with_any_hosts_that_have_enough_slots(
    workers: Workers, rendezvous: StartRendezvous
) -> None:
    workers.start(1, 3)
    answering = rendezvous(workers.run(2, maximum=4, mode="elastic")).wait()
    assert names(answering) == ["hvd-worker-1", "hvd-worker-3"]


def test_hosts_of_an_elastic_run_come_and_go(
    workers: Workers, rendezvous: StartRendezvous, background: Background
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
    workers: Workers, rendezvous: StartRendezvous, background: Background
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
    workers: Workers,
    rendezvous: StartRendezvous,
    background: Background,
    host_threads: list[threading.Thread],
) -> None:
    workers.start(0)
    elastic = rendezvous(workers.run(1, maximum=3, mode="elastic"))
    change = background(elastic.wait_for_change, elastic.wait())
    assert len(host_threads) == 3
    assert all(thread.is_alive() for thread in host_threads)
    assert all(thread.daemon for thread in host_threads), "they do not keep the process running"
    elastic.close()
    assert change.result(PATIENCE) is None
    join_threads(host_threads)


@pytest.mark.parametrize(
    "failure", [faults.status(403), faults.reset, None], ids=["403", "reset", "no API"]
)
def test_without_endpointslices_hosts_are_found_through_dns(
    workers: Workers,
    rendezvous: StartRendezvous,
    failure: faults.Failure | None,
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
