"""Workers that an upgrade has left are replaced, once, and by the master that drives."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hvd_pods.master import hosts, kube, missing
from tests.fakes import faults
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.fake_worker import Workers, ssh_banner
from tests.unit.podfiles.rendezvous import (
    Background,
    StartRendezvous,
    fail_on_thread_exceptions,
    names,
)
from tests.unit.podfiles.threads import join_threads

pytestmark = fail_on_thread_exceptions


def test_workers_that_another_master_replaces_are_left_alone(
    workers: Workers,
    reports: None,
    rendezvous: StartRendezvous,
    host_threads: list[threading.Thread],
) -> None:
    """A newer run's workers come while this one's master ends."""
    workers.start(0)
    current = rendezvous(workers.run(1))
    current.wait()
    workers.stop(0)
    workers.start(0, revision="r2")
    join_threads(host_threads)
    assert not workers.api.asked("DELETE", "core/pods/hvd-worker-0")


def test_a_master_that_is_asked_to_end_replaces_no_workers(
    workers: Workers,
    reports: None,
    rendezvous: StartRendezvous,
    host_threads: list[threading.Thread],
) -> None:
    workers.start(0)
    stopped = threading.Event()
    rendezvous(workers.run(1, mode="elastic"), stopped.is_set).wait()
    stopped.set()
    workers.listen(0, ssh_banner("r2"), "127.0.1.9")
    workers.create_pod(0, "r2")
    workers.publish(0, "127.0.1.9")
    join_threads([thread for thread in host_threads if thread.name == "check-pods"])
    assert not workers.api.asked("DELETE", "core/pods/hvd-worker-0")


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
        # Pods are read for reports, and when a worker answers that is stale.
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
        checks = workers.checks()
        workers.api.wait(lambda: workers.checks() > checks + 2)
    workers.start(0)
    assert names(waiting.result(TIMEOUT)) == ["hvd-worker-0"]
    output = capsys.readouterr().out
    assert output.count("replacing workers from before the last upgrade: hvd-worker-0") == 1
    if seen_by == "label":
        assert "hosts: hvd-worker-0: from before the last upgrade (" in output
    (request_to_delete,) = workers.api.asked("DELETE", "core/pods/hvd-worker-0")
    assert request_to_delete.body == {"preconditions": {"uid": "hvd-worker-0 r0"}}


@pytest.mark.parametrize("is_over", [True, False])
def test_pods_that_were_read_before_the_request_to_end_are_not_replaced(
    workers: Workers, is_over: bool
) -> None:
    workers.create_pod(0, "r0")
    run = workers.run(1)
    check = missing.PodCheck(run, kube.Api(), lambda: is_over)
    check.check(run.hosts, dict.fromkeys(run.hosts, "no answer"))
    assert bool(workers.api.items("core/pods")) is is_over


@pytest.mark.parametrize("over", ["the rendezvous", "the master", ""])
def test_master_replaces_no_workers_when_it_is_over(workers: Workers, over: str) -> None:
    workers.create_pod(0, "r0")
    current = hosts.HostRendezvous(workers.run(1), kube.Api(), lambda: over == "the master")
    if over == "the rendezvous":
        current.close()
    current.explain({current.run.hosts[0]: "no answer"})
    assert bool(workers.api.items("core/pods")) is bool(over)


@pytest.mark.slow
def test_all_stale_workers_are_replaced_at_once_although_none_answers(
    workers: Workers, reports: None, rendezvous: StartRendezvous, background: Background
) -> None:
    for ordinal in range(32):
        workers.create_pod(ordinal, "r0", phase="Pending")
    background(rendezvous(workers.run(32)).wait)
    workers.api.wait(lambda: not workers.api.items("core/pods"))
    asked = [item.method for item in workers.api.requests if item.path.startswith("core/pods")]
    assert asked[:33] == ["GET", *["DELETE"] * 32], "one list finds them all"


def test_a_pod_that_is_terminating_is_not_deleted_again(
    workers: Workers, reports: None, rendezvous: StartRendezvous, background: Background
) -> None:
    workers.create_pod(0, "r0")
    going: Any = workers.api.find("core/pods", "hvd-worker-0")
    going["metadata"]["deletionTimestamp"] = "2126-01-01T10:00:00Z"
    background(rendezvous(workers.run(1)).wait)
    workers.api.wait(lambda: workers.checks() > 2)
    assert not workers.api.asked("DELETE", "core/pods/hvd-worker-0")


@pytest.mark.parametrize(
    ("failure", "is_logged"),
    [(faults.status(403), True), (faults.reset, True), (faults.status(404), False),
     (faults.status(409), False)],
    ids=["403", "reset", "404", "409"],
)  # fmt: skip
def test_a_stale_worker_that_cannot_be_deleted_is_tried_again_unless_it_is_gone(
    workers: Workers,
    reports: None,
    rendezvous: StartRendezvous,
    background: Background,
    failure: faults.Failure,
    is_logged: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    workers.start(0, revision="r0")
    workers.api.fail("DELETE", "core/pods", failure)
    background(rendezvous(workers.run(1)).wait)
    if is_logged:
        workers.api.wait(lambda: not workers.api.items("core/pods"))
    else:
        workers.api.wait(lambda: workers.checks() > 3)
    attempts = workers.api.asked("DELETE", "core/pods/hvd-worker-0")
    assert len(attempts) == (2 if is_logged else 1)
    assert ("cannot replace hvd-worker-0" in capsys.readouterr().out) is is_logged
