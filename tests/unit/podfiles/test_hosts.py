"""The rendezvous of master and workers, over real sockets and a fake API server."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from hvd_pods.common import errors, run
from hvd_pods.master import hosts
from hvd_pods.master.addresses import Endpoint
from tests.fakes import faults
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.fake_worker import SLICES, Workers, ssh_banner
from tests.unit.podfiles.rendezvous import (
    Background,
    StartRendezvous,
    fail_on_thread_exceptions,
    names,
)
from tests.unit.podfiles.threads import join_threads
from tests.waiting import wait_until

pytestmark = fail_on_thread_exceptions


def test_hosts_that_answer_at_once_are_returned_in_the_runs_order(
    workers: Workers,
    rendezvous: StartRendezvous,
    host_threads: list[threading.Thread],
    capsys: pytest.CaptureFixture[str],
) -> None:
    workers.start(2, 0, 1)
    answering = rendezvous(workers.run(3)).wait()
    assert {host.name: address for host, address in answering.items()} == {
        f"hvd-worker-{ordinal}": workers.address(ordinal) for ordinal in range(3)
    }
    assert names(answering) == ["hvd-worker-0", "hvd-worker-1", "hvd-worker-2"]
    assert not [request for request in workers.api.requests if "pods" in request.path]
    assert capsys.readouterr().out == ""
    assert len(host_threads) == 2, "however many hosts there are"
    join_threads(host_threads)


def test_waiting_ends_when_the_pod_is_asked_to_end(
    workers: Workers, rendezvous: StartRendezvous, background: Background
) -> None:
    stopped = threading.Event()
    waiting = background(rendezvous(workers.run(), stopped.is_set).wait)
    workers.api.wait_for_watch(SLICES)
    stopped.set()
    with pytest.raises(errors.InterruptedRunError, match="terminated while") as raised:
        waiting.result(TIMEOUT)
    assert raised.value.exit_code == 143


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
    both = change.result(TIMEOUT)
    assert names(both) == ["hvd-worker-0", "hvd-worker-1"]

    change = background(elastic.wait_for_change, both)
    workers.stop(1)
    assert names(change.result(TIMEOUT)) == ["hvd-worker-0"]

    change = background(elastic.wait_for_change, first)
    workers.start(1)
    assert names(change.result(TIMEOUT)) == ["hvd-worker-0", "hvd-worker-1"], "it may come back"


@pytest.mark.slow
def test_hosts_that_an_elastic_run_loses_are_not_reported_as_missing(
    workers: Workers, reports: None, rendezvous: StartRendezvous, background: Background
) -> None:
    looks = threading.Semaphore(0)

    def look() -> bool:
        """The thread that reports asks each time whether the pod is to end."""
        looks.release()
        return False

    workers.start(0)
    elastic = rendezvous(workers.run(1, mode="elastic"), look)
    change = background(elastic.wait_for_change, elastic.wait())
    workers.stop(0)
    assert change.result(TIMEOUT) == {}
    checks = []
    for _ in range(2):
        while looks.acquire(blocking=False):
            pass
        assert all(looks.acquire(timeout=TIMEOUT) for _ in range(3))
        checks.append(workers.checks())
    assert checks[0] == checks[1], "no pods were read"


def test_a_host_of_an_elastic_run_may_come_back_at_another_address(
    workers: Workers, rendezvous: StartRendezvous, background: Background
) -> None:
    workers.start(0)
    elastic = rendezvous(workers.run(1, mode="elastic"))
    first = elastic.wait()
    change = background(elastic.wait_for_change, first)
    workers.listen(0, ssh_banner("r1"), "127.0.1.9")
    workers.publish(0, "127.0.1.9")
    now = change.result(TIMEOUT)
    if not now:
        now = background(elastic.wait_for_change, now).result(TIMEOUT)
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
    assert all(thread.is_alive() for thread in host_threads)
    assert all(thread.daemon for thread in host_threads), "they do not keep the process running"
    elastic.close()
    assert change.result(TIMEOUT) is None
    join_threads(host_threads)


@pytest.mark.parametrize(
    ("failure", "may_not_read"),
    [(faults.status(403), True), (faults.reset, False), (None, False)],
    ids=["403", "reset", "no API"],
)
def test_without_endpointslices_hosts_are_found_through_dns(
    workers: Workers,
    rendezvous: StartRendezvous,
    failure: faults.Failure | None,
    may_not_read: bool,
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
        workers.api.fail("GET", SLICES, failure, times=100)
    answering = rendezvous(workers.run(2, api=failure is not None)).wait()
    assert list(answering.values()) == [workers.address(0), workers.address(1)]
    output = capsys.readouterr().out
    assert ("using DNS instead" in output) is may_not_read
    assert ("cannot watch the hosts' addresses" in output) is (failure is faults.reset)


def test_each_host_that_comes_begins_the_time_out_anew(
    workers: Workers, rendezvous: StartRendezvous, background: Background
) -> None:
    """As an autoscaler's nodes come, one after the other; the same host counts once."""
    current = rendezvous(workers.run(3))
    deadlines = [current.deadline]
    waiting = background(current.wait)
    for ordinal in (0, 1):
        workers.start(ordinal)
        wait_until(lambda: current.deadline > deadlines[-1], TIMEOUT, "the deadline is put off")
        deadlines.append(current.deadline)
    workers.stop(0)
    wait_until(lambda: len(current.addresses()) == 1, TIMEOUT, "a host is gone")
    workers.start(0)
    wait_until(lambda: len(current.addresses()) == 2, TIMEOUT, "it is back")
    with current.changed:
        assert not current._has_new_hosts()
    current.deadline = 0.0
    with pytest.raises(errors.HostsTimeoutError):
        waiting.result(TIMEOUT)


def test_waiting_ends_when_a_host_that_came_back_completes_the_others(
    workers: Workers,
    rendezvous: StartRendezvous,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At once, not only when the master looks whether it was asked to end."""
    monkeypatch.setattr(hosts, "STOP_CHECK_EVERY", 60.0)
    current = rendezvous(workers.run(2))
    waiting = background(current.wait)
    workers.start(0)
    wait_until(lambda: len(current._arrived) == 1, TIMEOUT, "the first host has come")
    workers.stop(0)
    wait_until(lambda: not current.addresses(), TIMEOUT, "it is gone")
    workers.start(1)
    wait_until(lambda: len(current._arrived) == 2, TIMEOUT, "the second host has come")
    workers.start(0)
    assert names(waiting.result(TIMEOUT)) == ["hvd-worker-0", "hvd-worker-1"]


@pytest.mark.slow
def test_helm_test_waits_no_longer_for_hosts_that_come_one_after_the_other(
    workers: Workers, rendezvous: StartRendezvous
) -> None:
    workers.start(0)
    run = replace(workers.run(2), wait_until=time.monotonic() + 0.3)
    with pytest.raises(errors.HostsTimeoutError):
        rendezvous(run).wait()


@pytest.mark.slow
def test_an_elastic_run_that_was_training_goes_on_with_the_ranks_that_are_left(
    workers: Workers, rendezvous: StartRendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "RESUME_WITHIN", 0.05)
    workers.start(1)
    run = workers.run(3, mode="elastic", minRanks=2, hostsTimeoutSeconds=0.3)
    with pytest.raises(errors.RunError):
        rendezvous(run).wait()
    run = replace(run, resumed=True, hosts_timeout=60.0)
    assert names(rendezvous(run).wait()) == ["hvd-worker-1"]


@pytest.mark.slow
def test_an_elastic_run_that_was_training_needs_its_fewest_ranks(
    workers: Workers, rendezvous: StartRendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "RESUME_WITHIN", 0.0)
    workers.start(1)
    run = workers.run(3, mode="elastic", minRanks=3, hostsTimeoutSeconds=0.3)
    with pytest.raises(errors.RunError):
        rendezvous(replace(run, resumed=True)).wait()


def test_an_elastic_run_that_was_training_waits_a_moment_for_all_its_hosts(
    workers: Workers, rendezvous: StartRendezvous, background: Background
) -> None:
    workers.start(0, 1)
    run = replace(workers.run(3, mode="elastic", minRanks=2), resumed=True)
    waiting = background(rendezvous(run).wait)
    workers.api.wait_for_watch(SLICES)
    workers.start(2)
    assert len(names(waiting.result(TIMEOUT))) == 3


@pytest.mark.slow
def test_only_an_elastic_run_may_go_on_with_fewer_ranks(
    workers: Workers, rendezvous: StartRendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "RESUME_WITHIN", 0.0)
    workers.start(1)
    run = replace(workers.run(2, minRanks=1, hostsTimeoutSeconds=0.3), resumed=True)
    with pytest.raises(errors.RunError):
        rendezvous(run).wait()


def test_pod_is_that_of_the_address_that_answers(workers: Workers) -> None:
    """What is known of another address is not of the pod that answered."""
    current = hosts.HostRendezvous(workers.run(3, api=False), None, lambda: False)
    first, second, third = current.run.hosts
    current._last_endpoints = {
        first.name: Endpoint("10.0.0.1", True, "uid-1", "node-1"),
        second.name: Endpoint("10.0.0.2", True, "uid-2", "node-2"),
    }
    pods = current.pods({first: "10.0.0.1", second: "10.0.0.9", third: "10.0.0.3"})
    assert pods == {
        first: run.Pod("10.0.0.1", "uid-1", "node-1"),
        second: run.Pod("10.0.0.9"),
        third: run.Pod("10.0.0.3"),
    }
