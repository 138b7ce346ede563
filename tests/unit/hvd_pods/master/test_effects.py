"""Effects that last: hosts are watched until the master stops, and lanes keep calls in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from hvd_pods.common.run import Pod, Run
from hvd_pods.master import kube, probing
from hvd_pods.master import messages as m
from hvd_pods.master.carriers import Lanes
from hvd_pods.master.effects import Effects
from hvd_pods.master.job_events import EventRecorder
from hvd_pods.master.state import Facts
from tests.fakes.faults import TIMEOUT
from tests.unit.hvd_pods.fake_worker import SLICES, Workers
from tests.unit.hvd_pods.master.told import Told


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def watch(workers: Workers, told: Told) -> Iterator[Callable[[Run], Effects]]:
    """Watches the hosts of a run, of which two answer."""
    started: list[Effects] = []

    def begin(run: Run) -> Effects:
        workers.start(0, 1)
        api = kube.Api() if run.api else None
        facts = Facts(run, "own", "hvd-master-1", "uid-1")
        started.append(Effects(facts, api, EventRecorder(None), None, told))
        started[-1].carry_out(m.WatchHosts(2))
        told.wait_for(m.HostAnswers, 2)
        return started[-1]

    yield begin
    for effects in started:
        effects.carry_out(m.StopWatching())


Watch = Callable[[Run], Effects]


def test_hosts_are_asked_at_the_addresses_that_the_api_has(
    workers: Workers, watch: Watch, told: Told
) -> None:
    watch(workers.run())
    answers = {event.host: event for event in told.of(m.HostAnswers)}
    assert answers["hvd-worker-1"] == m.HostAnswers(
        2, "hvd-worker-1", Pod("127.0.1.2", "", "node-1")
    )
    workers.stop(0)
    told.wait_for(m.HostGone, host="hvd-worker-0")


@pytest.mark.usefixtures("api_server")
def test_hosts_are_asked_at_the_addresses_that_dns_has_without_the_api(
    workers: Workers, watch: Watch, told: Told, names: dict[str, list[str]]
) -> None:
    run = workers.run(api=False)
    for ordinal, host in enumerate(run.hosts):
        names[host.address] = [workers.address(ordinal)]
    watch(run)
    assert not workers.api.requests
    del names[run.hosts[0].address]
    told.wait_for(m.HostGone, host="hvd-worker-0")


def test_addresses_of_the_training_stay_when_they_are_withdrawn(
    workers: Workers, watch: Watch, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that terminates has none any more, and its ranks may still save."""
    monkeypatch.setattr(probing, "SUSPECT_EVERY", 0.02)
    watch(workers.run(lostAfterSeconds=15)).carry_out(m.FreezeHosts())
    workers.api.wait(lambda: not workers.api.watches(SLICES))
    workers.stop(0)
    told.wait(lambda: any(event.silent for event in told.of(m.HostProblem)))
    assert not told.of(m.HostGone)


@pytest.mark.parametrize("effect", [m.FreezeHosts(), m.StopWatching()], ids=["frozen", "stopped"])
def test_hosts_that_cannot_be_lost_are_asked_no_longer_than_needed(
    workers: Workers, watch: Watch, told: Told, effect: m.Effect
) -> None:
    before = {*threading.enumerate()}
    watch(workers.run()).carry_out(effect)
    for thread in {*threading.enumerate()} - before:
        if thread.name in ("probe-hosts", "follow-endpointslices"):
            thread.join(TIMEOUT)
            assert not thread.is_alive()
    number = len(told.events)
    workers.stop(0)
    assert len(told.events) == number


def test_calls_of_a_lane_keep_their_order_and_others_do_not_wait(told: Told) -> None:
    lanes, may_end = Lanes(told), threading.Event()

    def wait_for_end() -> m.Event:
        may_end.wait(TIMEOUT)
        return m.Timer("first")

    lanes.call("a", wait_for_end)
    lanes.call("a", lambda: m.Timer("second"))
    lanes.call("b", lambda: m.Timer("other"))
    told.wait_for(m.Timer)
    may_end.set()
    told.wait_for(m.Timer, 3)
    assert [event.name for event in told.of(m.Timer)] == ["other", "first", "second"]


def test_call_that_fails_without_need_is_a_defect_with_its_traceback(told: Told) -> None:
    lanes = Lanes(told)
    lanes.call("a", lambda: m.Timer(str(1 // 0)))
    lanes.call("a", lambda: None)
    lanes.call("a", lambda: m.Timer("later"))
    told.wait_for(m.Timer, name="later")
    assert "ZeroDivisionError" in told.wait_for(m.Defect).traceback
    assert len(told.events) == 2, "a call without news tells nothing"
