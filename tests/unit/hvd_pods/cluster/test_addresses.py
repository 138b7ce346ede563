"""The workers' addresses: from EndpointSlices as they change, and from DNS."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.cluster import addresses, kube
from hvd_pods.cluster.addresses import DnsAddresses, Endpoint, Pauses, SliceAddresses
from hvd_pods.shared.run import Worker
from tests.support.fakes import faults
from tests.support.fakes.api import FakeApi
from tests.support.fakes.faults import TIMEOUT
from tests.support.fakes.server import Handler
from tests.support.runs import make_run
from tests.unit.hvd_pods.support.call_limits import ONCE
from tests.unit.hvd_pods.support.workers import SLICES

WORKER, OTHER = (Worker(f"w-{number}", f"w-{number}.hvd", 1, "w", "r1") for number in (0, 1))
IPV4 = "10.0.0.7"
IPV6 = "fd00::7"
GROUP = {"stateful_set": "w", "number": 2, "maximum": 2, "slots": 1, "revision": "r1"}
RUN = make_run(groups=[GROUP])
SHORT = Pauses(0.01, 0.01, 0.01, 0.01)
Names = dict[str, list[str]]


class Follower:
    """Follows addresses without a pause, and waits for what a test expects of them.

    `news`: the address of WORKER at each change. `threads`: those that follow.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._before = {*threading.enumerate()}
        self.news: list[str | None] = []
        self.source: SliceAddresses | DnsAddresses

    @property
    def threads(self) -> set[str]:
        own = {*threading.enumerate()} - self._before
        return {thread.name for thread in own if thread.name.startswith(("look-up", "follow-"))}

    def follow_slices(self, pauses: Pauses = SHORT) -> None:
        self.source = SliceAddresses(kube.Api(ONCE), RUN, pauses)
        self.source.start(self._note)

    def follow_dns(self, *workers: Worker) -> None:
        self.source = DnsAddresses(workers, SHORT)
        self.source.start(self._note)

    def find(self, worker: Worker) -> str | None:
        endpoint = self.source.endpoints().get(worker.name)
        return endpoint and endpoint.address

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, TIMEOUT)

    def wait_for(self, worker: Worker, address: str | None) -> None:
        self.wait(lambda: self.find(worker) == address)

    def _note(self) -> None:
        with self._changed:
            self.news.append(self.find(WORKER))
            self._changed.notify_all()


@pytest.fixture
def follower(api_server: FakeApi) -> Iterator[Follower]:
    made = Follower()
    yield made
    made.source.close()


def endpoint(name: str, address: str, **conditions: bool) -> dict[str, Any]:
    target = {"kind": "Pod", "name": name, "uid": f"uid of {name}"}
    return {"addresses": [address], "conditions": conditions, "targetRef": target}


def put_slice(
    api_server: FakeApi, name: str, worker: Worker, address: str, service: str = "hvd"
) -> None:
    metadata = {"name": name, "labels": {"kubernetes.io/service-name": service}}
    endpoints = [endpoint(worker.name, address)]
    api_server.put(SLICES, {"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints})


@pytest.fixture
def slices(api_server: FakeApi, follower: Follower) -> Follower:
    """The Service's slices, with one pod at first, followed."""
    put_slice(api_server, "s1", WORKER, IPV4)
    put_slice(api_server, "x", OTHER, IPV4, service="other")
    follower.follow_slices()
    api_server.wait_for_watch(SLICES)
    return follower


@pytest.fixture
def resolved(follower: Follower, names: Names) -> Follower:
    """Two workers whose names resolve, followed in DNS."""
    names.update({WORKER.address: [IPV6, "10.0.0.3"], OTHER.address: ["10.0.0.5"]})
    follower.follow_dns(WORKER, OTHER)
    follower.wait_for(WORKER, "10.0.0.3")
    follower.wait_for(OTHER, "10.0.0.5")
    return follower


def test_ipv4_wins_over_ipv6_whatever_the_order_of_slices() -> None:
    ipv4: Any = {"addressType": "IPv4", "endpoints": [endpoint("w-0", IPV4)]}
    ipv6: Any = {"addressType": "IPv6", "endpoints": [endpoint("w-0", IPV6)]}
    assert addresses.pod_endpoints([ipv4, ipv6])["w-0"].address == IPV4
    assert addresses.pod_endpoints([ipv6, ipv4])["w-0"].address == IPV4
    assert addresses.pod_endpoints([ipv6])["w-0"].address == IPV6


def test_only_endpoints_of_pods_that_are_not_terminating_count() -> None:
    found: list[Any] = [
        endpoint("a-0", "10.0.0.1", ready=False),
        {**endpoint("a-6", "10.0.0.6", serving=True), "nodeName": "n6"},
        endpoint("a-1", "10.0.0.2", terminating=True),
        {"addresses": ["10.0.0.3"]},
        {"addresses": ["10.0.0.4"], "targetRef": {"kind": "Node", "name": "n"}},
        endpoint("a-5", "10.0.0.5"),
    ]
    assert addresses.pod_endpoints([{"endpoints": found}, {}]) == {
        "a-0": Endpoint("10.0.0.1", False, "uid of a-0"),
        "a-5": Endpoint("10.0.0.5", False, "uid of a-5"),
        "a-6": Endpoint("10.0.0.6", True, "uid of a-6", "n6"),
    }


def test_only_slices_of_the_service_count(slices: Follower) -> None:
    assert slices.find(WORKER) == IPV4
    assert slices.find(OTHER) is None, "this slice is another Service's"
    assert slices.source.missing == addresses.NO_ADDRESS_YET


def test_slices_are_followed_by_one_list_and_one_watch(
    slices: Follower, api_server: FakeApi
) -> None:
    put_slice(api_server, "s2", OTHER, "10.0.0.8")
    slices.wait_for(OTHER, "10.0.0.8")
    assert slices.find(WORKER) == IPV4, "another slice leaves it as it is"
    put_slice(api_server, "s1", WORKER, "10.0.0.9")
    slices.wait_for(WORKER, "10.0.0.9")
    api_server.remove(SLICES, "s1")
    slices.wait_for(WORKER, None)
    assert slices.find(OTHER) == "10.0.0.8"
    assert len(api_server.asked("GET", SLICES)) == 2


def test_addresses_stay_when_the_service_is_deleted(slices: Follower, api_server: FakeApi) -> None:
    """That it is gone says nothing about its pods."""
    news = len(slices.news)
    api_server.remove(SLICES, "s1")
    wait_until(lambda: len(slices.news) > news, TIMEOUT, "the slice is gone")
    assert slices.find(WORKER) == IPV4
    assert slices.source.missing.lacks_service


def test_slices_that_cannot_be_watched_any_more_are_logged_once(
    slices: Follower, api_server: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api_server.fail("GET", SLICES, faults.status(403), times=3)
    before = len(api_server.asked("GET", SLICES))
    api_server.end_watches()
    api_server.wait(lambda: len(api_server.asked("GET", SLICES)) > before + 3)
    assert capsys.readouterr().out.count("403") == 1


@pytest.mark.parametrize(
    "break_off",
    [
        FakeApi.end_watches,
        lambda api: api.end_watches(faults.cut_chunk),
        lambda api: api.end_watches(faults.reset),
        FakeApi.expire,
    ],
    ids=["server's limit", "cut chunk", "reset", "410 event"],
)
def test_nothing_is_missed_after_a_watch_ends(
    slices: Follower, api_server: FakeApi, break_off: Callable[[FakeApi], None]
) -> None:
    put_slice(api_server, "s2", OTHER, "10.0.0.8")
    slices.wait_for(OTHER, "10.0.0.8")
    break_off(api_server)
    api_server.wait_for_watch(SLICES, 2)
    put_slice(api_server, "s1", WORKER, "10.0.0.9")
    slices.wait_for(WORKER, "10.0.0.9")
    requests = api_server.asked("GET", SLICES)
    first, second = (
        request.query["resourceVersion"] for request in requests if "watch" in request.query
    )
    assert int(second) > int(first), "the version was too old to watch from"


@pytest.mark.parametrize("code", [403, 404])
def test_slices_that_may_not_be_read_leave_it_to_dns(
    api_server: FakeApi,
    follower: Follower,
    names: Names,
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names[WORKER.address] = ["10.0.0.3"]
    api_server.fail("GET", SLICES, faults.status(code))
    follower.follow_slices()
    follower.wait_for(WORKER, "10.0.0.3")
    assert follower.find(OTHER) is None
    assert follower.source.missing == DnsAddresses.missing
    wait_until(lambda: follower.threads == {"look-up-workers"}, TIMEOUT, "the API is given up")
    assert len(api_server.requests) == 1
    assert capsys.readouterr().out.count("DNS") == 1


@pytest.mark.parametrize("failure", [faults.status(503), faults.reset], ids=["503", "reset"])
def test_dns_helps_until_the_api_server_answers_and_no_longer(
    api_server: FakeApi, follower: Follower, names: Names, failure: faults.Failure
) -> None:
    names[WORKER.address] = ["10.0.0.3"]
    back = threading.Event()

    def fail_until_back(handler: Handler) -> None:
        if not back.is_set():
            api_server.fail("GET", SLICES, fail_until_back)
        failure(handler)

    api_server.fail("GET", SLICES, fail_until_back)
    put_slice(api_server, "s1", WORKER, IPV4)
    follower.follow_slices()
    follower.wait_for(WORKER, "10.0.0.3")
    api_server.wait(lambda: len(api_server.requests) > 3)
    back.set()
    follower.wait_for(WORKER, IPV4)
    wait_until(lambda: follower.threads == {"follow-endpointslices"}, TIMEOUT, "DNS is left")
    assert follower.source.missing == addresses.NO_ADDRESS_YET


@pytest.mark.slow
@pytest.mark.usefixtures("names")
def test_api_server_that_cannot_be_watched_is_asked_less_and_less_often(
    api_server: FakeApi, follower: Follower
) -> None:
    asked = []

    def refuse(handler: Handler) -> None:
        asked.append(time.monotonic())
        wants_more = len(asked) == 5
        faults.status(429, **{"Retry_After": "1"} if wants_more else {})(handler)

    api_server.fail("GET", SLICES, refuse, times=6)
    follower.follow_slices(SHORT._replace(first_reconnect=0.02, longest_reconnect=0.08))
    api_server.wait(lambda: len(asked) == 6)
    # The pauses are random, from the half of each to the whole.
    least = [0.01, 0.02, 0.04, 0.04, 1.0]
    assert all(
        later - earlier >= pause
        for (earlier, later), pause in zip(pairwise(asked), least, strict=True)
    )


def test_dns_reports_the_ipv4_address_and_nothing_else(resolved: Follower) -> None:
    """MPIs lack IPv6, whatever the resolver prefers."""
    assert resolved.source.endpoints()["w-0"] == Endpoint("10.0.0.3", is_serving=False)


def test_dns_server_that_does_not_answer_says_nothing_about_a_worker(
    resolved: Follower, names: Names
) -> None:
    names[WORKER.address] = []
    # The other worker shows that WORKER was looked up meanwhile.
    names[OTHER.address] = ["10.0.0.6"]
    resolved.wait_for(OTHER, "10.0.0.6")
    names[OTHER.address] = ["10.0.0.7"]
    resolved.wait_for(OTHER, "10.0.0.7")
    assert resolved.find(WORKER) == "10.0.0.3"


def test_dns_announces_each_change_of_an_address_and_nothing_else(
    resolved: Follower, names: Names
) -> None:
    names[WORKER.address] = ["10.0.0.4"]
    resolved.wait_for(WORKER, "10.0.0.4")
    del names[WORKER.address]
    resolved.wait_for(WORKER, None)
    resolved.source.close()
    wait_until(lambda: not resolved.threads, TIMEOUT, "the threads end")
    assert len(resolved.news) == 2 + 2, "for each worker at first, and for each change"
