"""The hosts' addresses: from EndpointSlices as they change."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.master import addresses, kube
from hvd_pods.master.addresses import Endpoint
from tests.fakes import faults
from tests.fakes.api import FakeApi
from tests.unit.podfiles.follower import HOST, IPV4, IPV6, OTHER, RUN, Follower, Names
from tests.unit.podfiles.threads import join_threads

SLICES = "discovery.k8s.io/endpointslices"


def endpoint(name: str, address: str, **conditions: bool) -> dict[str, Any]:
    target = {"kind": "Pod", "name": name, "uid": f"uid of {name}"}
    return {"addresses": [address], "conditions": conditions, "targetRef": target}


def endpoint_slice(name: str, *endpoints: dict[str, Any], service: str = "hvd") -> dict[str, Any]:
    metadata = {"name": name, "labels": {"kubernetes.io/service-name": service}}
    return {"metadata": metadata, "addressType": "IPv4", "endpoints": list(endpoints)}


def test_ipv4_wins_over_ipv6_whatever_the_order_of_slices() -> None:
    ipv4, ipv6 = (
        {"addressType": family, "endpoints": [endpoint(HOST.name, address)]}
        for family, address in (("IPv4", IPV4), ("IPv6", IPV6))
    )
    for slices, address in (([ipv4, ipv6], IPV4), ([ipv6, ipv4], IPV4), ([ipv6], IPV6)):
        expected = {HOST.name: Endpoint(address, False, f"uid of {HOST.name}")}
        assert addresses.pod_endpoints(slices) == expected


def test_terminating_endpoints_and_those_of_no_pod_are_left_out() -> None:
    slices: list[dict[str, Any]] = [
        {"endpoints": [endpoint("a-0", "10.0.0.1", ready=False)]},
        {"endpoints": [endpoint("a-6", "10.0.0.6", ready=True, serving=True)]},
        {"endpoints": [endpoint("a-1", "10.0.0.2", terminating=True)]},
        {"endpoints": [{"addresses": ["10.0.0.3"]}]},
        {"endpoints": [{"addresses": ["10.0.0.4"], "targetRef": {"kind": "Node", "name": "n"}}]},
        {"endpoints": [{**endpoint("a-5", "10.0.0.5"), "conditions": None}]},
        {"endpoints": None},
    ]
    assert addresses.pod_endpoints(slices) == {
        "a-0": Endpoint("10.0.0.1", False, "uid of a-0"),
        "a-5": Endpoint("10.0.0.5", False, "uid of a-5"),
        "a-6": Endpoint("10.0.0.6", True, "uid of a-6"),
    }


@pytest.fixture
def source(api_server: FakeApi, followers: list[threading.Thread], follower: Follower) -> Follower:
    """The Service's slices, one pod at first, followed."""
    api_server.put(SLICES, endpoint_slice("s1", endpoint(HOST.name, IPV4)))
    api_server.put(SLICES, endpoint_slice("x", endpoint(OTHER.name, IPV4), service="other"))
    follower.start(addresses.SliceAddresses(kube.Api(), RUN, follower.on_change))
    api_server.wait_for_watch(SLICES)
    return follower


def test_slices_of_the_service_are_read(source: Follower) -> None:
    assert source.find(HOST) == IPV4
    assert source.find(OTHER) is None, "a slice of another Service"
    assert source.source.missing == "it has no address yet"


def test_slices_that_are_added_changed_and_deleted_are_followed(
    source: Follower, api_server: FakeApi
) -> None:
    api_server.put(SLICES, endpoint_slice("s2", endpoint(OTHER.name, "10.0.0.8")))
    source.wait_for(OTHER, "10.0.0.8")
    assert source.find(HOST) == IPV4
    api_server.put(SLICES, endpoint_slice("s1", endpoint(HOST.name, "10.0.0.9")))
    source.wait_for(HOST, "10.0.0.9")
    api_server.remove(SLICES, "s1")
    source.wait_for(HOST, None)
    assert source.find(OTHER) == "10.0.0.8"
    assert len(api_server.asked("GET", SLICES)) == 2, "one list and one watch are enough"


@pytest.mark.parametrize(
    "break_off",
    [
        FakeApi.end_watches,
        lambda api: api.end_watches(faults.cut_chunk),
        lambda api: api.end_watches(faults.cut_line),
        lambda api: api.end_watches(faults.reset),
        FakeApi.expire,
    ],
    ids=["server's limit", "cut chunk", "cut line", "reset", "410 event"],
)
def test_the_follower_goes_on_after_a_watch_ends(
    source: Follower, api_server: FakeApi, break_off: Callable[[FakeApi], None]
) -> None:
    break_off(api_server)
    api_server.wait_for_watch(SLICES, 2)
    api_server.put(SLICES, endpoint_slice("s1", endpoint(HOST.name, "10.0.0.9")))
    source.wait_for(HOST, "10.0.0.9")


FAILURES = {
    "503": faults.status(503),
    "429": faults.status(429),
    "410": faults.status(410),
    "reset": faults.reset,
    "cut": faults.cut_answer,
    "no list": faults.text(200, "{}"),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_the_follower_goes_on_when_it_cannot_list_for_a_while(
    source: Follower,
    api_server: FakeApi,
    failure: faults.Failure,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api_server.fail("GET", SLICES, failure, times=3)
    api_server.end_watches()
    api_server.remove(SLICES, "s1")
    source.wait_for(HOST, None)
    assert capsys.readouterr().out.count("cannot watch the hosts' addresses") == 3


def test_a_version_that_is_too_old_is_not_watched_again(
    source: Follower, api_server: FakeApi
) -> None:
    api_server.put(SLICES, endpoint_slice("s2", endpoint(OTHER.name, "10.0.0.8")))
    source.wait_for(OTHER, "10.0.0.8")
    api_server.expire()
    api_server.wait_for_watch(SLICES, 2)
    requests = api_server.asked("GET", SLICES)
    versions = [item.query["resourceVersion"] for item in requests if "watch" in item.query]
    assert int(versions[1]) > int(versions[0])


def test_a_closed_follower_asks_no_more(
    source: Follower,
    followers: list[threading.Thread],
    api_server: FakeApi,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source.source.close()
    (thread,) = followers
    assert thread.daemon, "it does not keep the process running"
    join_threads(followers)
    api_server.put(SLICES, endpoint_slice("s1", endpoint(HOST.name, "10.0.0.9")))
    assert source.find(HOST) == IPV4
    assert len(api_server.requests) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("code", [403, 404])
def test_slices_that_may_not_be_read_leave_it_to_dns(
    api_server: FakeApi,
    follower: Follower,
    names: Names,
    code: int,
    followers: list[threading.Thread],
    capsys: pytest.CaptureFixture[str],
) -> None:
    names[HOST.address] = ["10.0.0.3"]
    api_server.fail("GET", SLICES, faults.status(code))
    follower.start(addresses.SliceAddresses(kube.Api(), RUN, follower.on_change))
    follower.wait_for(HOST, "10.0.0.3")
    assert follower.find(OTHER) is None
    assert follower.source.missing == "its name does not resolve"
    join_threads(followers[:1])
    assert len(api_server.requests) == 1, "the API is not asked again"
    assert capsys.readouterr().out.count("using DNS instead") == 1


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_one_failure_at_the_start_does_not_leave_it_to_dns(
    api_server: FakeApi,
    follower: Follower,
    names: Names,
    failure: faults.Failure,
    followers: list[threading.Thread],
) -> None:
    """DNS helps until the API server answers, and no longer."""
    names[HOST.address] = ["10.0.0.3"]
    back = threading.Event()

    def fail_until_back(handler: Any) -> None:
        if not back.is_set():
            api_server.fail("GET", SLICES, fail_until_back)
        failure(handler)

    api_server.fail("GET", SLICES, fail_until_back)
    api_server.put(SLICES, endpoint_slice("s1", endpoint(HOST.name, IPV4)))
    follower.start(addresses.SliceAddresses(kube.Api(), RUN, follower.on_change))
    follower.wait_for(HOST, "10.0.0.3")
    api_server.wait(lambda: len(api_server.requests) > 3)
    assert len(followers) == 1 + 2, "one for the slices, and one for each name"
    back.set()
    follower.wait_for(HOST, IPV4)
    api_server.wait_for_watch(SLICES)
    assert follower.source.missing == "it has no address yet"


def test_the_right_to_read_slices_that_is_lost_later_leaves_what_is_known(
    source: Follower, api_server: FakeApi
) -> None:
    api_server.fail("GET", SLICES, faults.status(403), times=3)
    api_server.end_watches()
    api_server.wait_for_watch(SLICES, 2)
    assert source.find(HOST) == IPV4


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        (Endpoint("10.0.0.1", False, "a"), Endpoint("10.0.0.1", True, "a"), True),
        (Endpoint("10.0.0.1", False, "a"), Endpoint("10.0.0.1", False, "b"), False),
        (Endpoint("10.0.0.1", False, "a"), Endpoint("10.0.0.2", False, "a"), False),
        (Endpoint("10.0.0.1", False, "a"), None, False),
        # DNS does not tell the uid.
        (Endpoint("10.0.0.1"), Endpoint("10.0.0.1", False, "a"), True),
        (Endpoint("10.0.0.1", False, "a"), Endpoint("10.0.0.1"), True),
        (Endpoint("10.0.0.1"), Endpoint("10.0.0.1"), True),
    ],
)
def test_pod_is_the_same_unless_its_address_or_uid_differs(
    before: Endpoint, now: Endpoint | None, same: bool
) -> None:
    assert before.is_same_pod(now) is same


class Script:
    """An API whose lists and watches take seconds and end as a test says; the clock is its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *steps: Any) -> None:
        self.steps, self.now, self.pauses = iter(steps), 0.0, list[float]()
        monkeypatch.setattr(addresses, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(random, "uniform", lambda low, high: high)
        self.source = addresses.SliceAddresses(self, RUN, lambda: None)  # type: ignore[arg-type]
        self.source._uses_dns = True
        self.source._closed = self  # type: ignore[assignment]

    def list_all(self, *_: object, **__: object) -> tuple[list[Any], str]:
        self.step = next(self.steps, None)
        if isinstance(self.step, kube.ApiError):
            raise self.step
        return [], "1"

    def watch(self, *_: object) -> Iterator[Any]:
        seconds, number, problem = self.step or (0.0, 0, None)
        self.now += seconds
        item = {"metadata": {"name": "s1"}, "endpoints": []}
        yield from [{"type": "ADDED", "object": item}] * number
        if problem:
            raise problem

    def is_set(self) -> bool:
        return self.step is None

    def wait(self, seconds: float) -> None:
        self.pauses.append(seconds)

    step: Any = 0


def test_server_that_cannot_be_watched_is_asked_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = kube.ApiError(503, "away")
    script = Script(
        monkeypatch,
        away,
        away,
        kube.ApiError(429, "later", 42.0),
        # Watches: their seconds, events, and what ends them.
        (0.0, 0, None),
        (5.0, 0, away),
        # Worked, and brought nothing new: from the start, and with a pause.
        (5.5, 0, None),
        away,
        # News: without a pause.
        (0.0, 2, away),
        (0.0, 1, None),
        away,
        *[away] * 6,
    )
    script.source._follow()
    assert script.pauses[:5] == [0.2, 0.4, 42.0, 1.6, 3.2]
    assert script.pauses[5:7] == [0.2, 0.4]
    assert script.pauses[7:14] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0]
    assert capsys.readouterr().out.count("cannot watch the hosts' addresses") == 12
