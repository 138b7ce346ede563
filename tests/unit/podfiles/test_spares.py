"""Spares: hosts that stand in for those that do not answer."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from typing import Any

import pytest

from hvd_pods.common import errors, run, ssh
from hvd_pods.master import hosts, leftover_ranks, main, probing, remote
from hvd_pods.master.spares import choose_hosts, record_hosts
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.fake_worker import SLICES, Workers, ssh_banner
from tests.unit.podfiles.master_pod import MasterPod, read_log
from tests.unit.podfiles.rendezvous import (
    Background,
    StartRendezvous,
    end_wait_at,
    fail_on_thread_exceptions,
    names,
)
from tests.unit.podfiles.runs import make_run
from tests.waiting import wait_until

pytestmark = fail_on_thread_exceptions
SMALL = {"statefulSet": "hvd-worker", "number": 1, "maximum": 2, "slots": 2, "revision": "r1"}
BIG = {"statefulSet": "hvd-big", "number": 1, "maximum": 1, "slots": 2, "revision": "r1"}


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_a_run_begins_as_soon_as_enough_hosts_answer(
    workers: Workers, rendezvous: StartRendezvous, absent: int
) -> None:
    present = [ordinal for ordinal in range(3) if ordinal != absent]
    workers.start(*present)
    answering = rendezvous(workers.run(2, maximum=3)).wait()
    assert names(answering) == [f"hvd-worker-{ordinal}" for ordinal in present]
    assert list(answering.values()) == [workers.address(ordinal) for ordinal in present]


def test_the_first_hosts_of_those_that_answer_have_the_ranks() -> None:
    """However they came to answer: ranks stay where they were."""
    run = make_run(groups=[{**SMALL, "number": 2, "maximum": 4}, BIG])
    reverse = {host: host.name for host in reversed(run.hosts) if host.name != "hvd-worker-1"}
    assert names(choose_hosts(run, reverse)) == ["hvd-worker-0", "hvd-worker-2", "hvd-big-0"]


def test_a_spare_stands_in_for_a_host_of_its_own_group_only(
    workers: Workers, rendezvous: StartRendezvous, background: Background
) -> None:
    """Two hosts have the slots of the run, but both are of the group that needs one."""
    workers.start(0, 1)
    current = rendezvous(workers.run(groups=[SMALL, BIG]))
    waiting = background(current.wait)
    with current.changed:
        assert current.changed.wait_for(lambda: len(current.answering) == 2, TIMEOUT)
    assert not current.is_enough()
    workers.listen(5, b"SSH-2.0-x hvd-r1\r\n")
    endpoint = {
        "addresses": [workers.address(5)],
        "targetRef": {"kind": "Pod", "name": "hvd-big-0"},
    }
    labels = {"kubernetes.io/service-name": "hvd"}
    workers.api.put(
        SLICES, {"metadata": {"name": "big", "labels": labels}, "endpoints": [endpoint]}
    )
    assert names(waiting.result(TIMEOUT)) == ["hvd-worker-0", "hvd-big-0"]


def test_a_report_tells_how_many_are_needed_and_why_each_does_not_answer(
    workers: Workers, rendezvous: StartRendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_wait_at(monkeypatch, 1)
    workers.start(0)
    workers.create_pod(1, phase="Pending")
    with pytest.raises(errors.RunError) as raised:
        rendezvous(workers.run(2, maximum=3)).wait()
    lines = str(raised.value).splitlines()
    assert lines[0] == "1 of 2 hosts did not answer within launch.hostsTimeoutSeconds=60:"
    assert lines[1:] == [
        "  hvd-worker-1: phase Pending; it has no address yet",
        "  hvd-worker-2: the pod does not exist",
    ]


@pytest.mark.parametrize(("broken", "fails"), [([1], False), ([1, 2], True)])
def test_more_hosts_that_cannot_start_than_spares_fail_the_attempt(
    workers: Workers,
    rendezvous: StartRendezvous,
    reports: None,
    background: Background,
    broken: list[int],
    fails: bool,
) -> None:
    workers.start(0)
    invalid = {"waiting": {"reason": "InvalidImageName", "message": "m"}}
    status: dict[str, Any] = {
        "containerStatuses": [{"name": "worker", "image": "i", "state": invalid}]
    }
    for ordinal in broken:
        workers.create_pod(ordinal, **status)
    waiting = background(rendezvous(workers.run(2, maximum=3)).wait)
    if fails:
        # The other host may not have answered yet.
        both = r"of 2 hosts cannot start:(?s:.*)hvd-worker-\[1-2\] \(2 hosts\): InvalidImageName"
        with pytest.raises(errors.ConfigurationError, match=both):
            waiting.result(TIMEOUT)
        return
    checks = workers.checks()
    workers.api.wait(lambda: workers.checks() > checks + 2)
    assert not waiting.done()
    workers.start(2)
    assert names(waiting.result(TIMEOUT)) == ["hvd-worker-0", "hvd-worker-2"]


@pytest.mark.slow
def test_spares_are_created_again_with_the_others(
    workers: Workers, rendezvous: StartRendezvous
) -> None:
    scaled = {"metadata": {"name": "hvd-worker"}, "spec": {"replicas": 0}}
    workers.api.put("apps/statefulsets", scaled)
    with pytest.raises(errors.RunError):
        rendezvous(workers.run(2, maximum=3, hostsTimeoutSeconds=0.1)).wait()
    (patch,) = workers.api.asked("PATCH", "apps/statefulsets/hvd-worker/scale")
    assert patch.body == {"spec": {"replicas": 3}}


@pytest.mark.slow
def test_a_spare_takes_the_place_of_a_lost_worker_at_once(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lost one does not come back."""
    pod.workers.start(2)
    pod.install('cp "$4" "$OUT/hosts-$HVD_ATTEMPT"; [ "$HVD_ATTEMPT" = 2 ]')
    announce = main.announce_failure

    def lose_a_host(*arguments: Any) -> None:
        pod.workers.stop(1)
        announce(*arguments)

    monkeypatch.setattr(main, "announce_failure", lose_a_host)
    assert pod.run(maximum=3) == 0
    folder = pod.generated.parent
    used = [(folder / f"hosts-{attempt}").read_text().split()[::2] for attempt in (1, 2)]
    assert used[1] == ["hvd-worker-0.hvd", "hvd-worker-2.hvd"]
    item: Any = pod.api.find("core/configmaps", "hvd-run")
    assert json.loads(item["data"]["hosts"]) == {"hvd-worker": "0,2"}
    messages = [event["message"] for event in pod.api.items("core/events")]
    assert "2 hosts respond, and 0 of 1 spares" in messages
    assert messages.count("horovodrun starts 4 ranks on 2 hosts") == 2


@pytest.mark.slow
def test_workers_without_ranks_end_what_an_earlier_attempt_has_left(
    workers: Workers,
    rendezvous: StartRendezvous,
    background: Background,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A session does that: with each spare, and with each worker that comes back."""
    monkeypatch.setattr(probing, "SUSPECT_EVERY", 0.02)
    configured: list[list[str]] = []
    called: queue.Queue[list[str]] = queue.Queue()
    monkeypatch.setattr(
        ssh, "write_client_config", lambda port, addresses: configured.append(names(addresses))
    )

    stopped: list[Callable[[], bool]] = []

    def call(asked: list[run.Host], *_: Any, **options: Any) -> dict[run.Host, Any]:
        stopped.append(options["is_stopped"])
        if asked:
            called.put([host.name for host in asked])
        return dict.fromkeys(asked, (0, ""))

    monkeypatch.setattr(remote, "call", call)
    workers.publish(1)
    workers.publish(2)
    workers.start(0)
    current = rendezvous(workers.run(1, maximum=3, lostAfterSeconds=0.2))
    used = current.wait()
    ending = background(leftover_ranks.end_what_is_left, current.run, current, used)
    for _ in range(2):
        workers.listen(1, ssh_banner("r1"))
        assert called.get(timeout=TIMEOUT) == ["hvd-worker-1"]
        workers.drop(1)
        wait_until(lambda: configured[-1] == ["hvd-worker-0"], TIMEOUT, "its loss is noticed")
    for ordinal in (2, 1):
        workers.listen(ordinal, ssh_banner("r1"))
        assert called.get(timeout=TIMEOUT) == [f"hvd-worker-{ordinal}"]
    assert configured[-1] == ["hvd-worker-0", "hvd-worker-1", "hvd-worker-2"]
    assert not any(is_stopped() for is_stopped in stopped)
    current.close()
    assert ending.result(TIMEOUT) is None
    assert called.empty()
    assert all(is_stopped() for is_stopped in stopped), "a session would keep the master waiting"


def test_worker_whose_session_fails_is_named_unless_the_attempt_is_over(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    current = hosts.HostRendezvous(workers.run(3, api=False), None, lambda: False)
    used, second, third = current.run.hosts
    current.answering.update(dict.fromkeys(current.run.hosts, "10.0.0.1"))
    monkeypatch.setattr(ssh, "write_client_config", lambda port, addresses: None)

    def call(called: list[run.Host], *_: Any, **__: Any) -> dict[run.Host, Any]:
        if called == [second, third]:
            del current.answering[third]
            return {second: (255, "no route"), third: (0, "")}
        current.answering[third] = "10.0.0.1"
        current.ended = called == [third]
        return dict.fromkeys(called, (255, "closed"))

    monkeypatch.setattr(remote, "call", call)
    leftover_ranks.end_what_is_left(current.run, current, {used: "10.0.0.1"})
    assert read_log(capsys) == [
        "cannot end what earlier attempts may have left on hvd-worker-1: no route"
    ]


@pytest.mark.slow
def test_each_attempt_ends_what_is_left_on_workers_without_ranks(
    pod: MasterPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: queue.Queue[int] = queue.Queue()
    monkeypatch.setattr(
        main, "end_what_is_left", lambda run, rendezvous, hosts: used.put(len(hosts))
    )
    pod.workers.start(2)
    pod.install('[ "$HVD_ATTEMPT" = 2 ]')
    assert pod.run(maximum=3) == 0
    assert [used.get(timeout=TIMEOUT) for _ in range(2)] == [2, 2]


@pytest.mark.slow
def test_workers_are_created_with_the_spares(pod: MasterPod) -> None:
    pod.workers.start(2)
    pod.install("exit 0")
    assert pod.run(maximum=3, cleanup="Never") == 0
    assert pod.replicas() == 3


def test_the_record_tells_which_workers_have_ranks() -> None:
    run = make_run(groups=[{**SMALL, "number": 3, "maximum": 5}, BIG])
    used = [host for host in run.hosts if host.name != "hvd-worker-1"]
    assert json.loads(record_hosts(run, used)) == {"hvd-worker": "0,2-4", "hvd-big": "0"}
    assert record_hosts(make_run(), make_run().hosts) == "", "the first ones, where all are needed"
