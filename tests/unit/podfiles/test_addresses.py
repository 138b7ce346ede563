"""The hosts' addresses: from EndpointSlices as they change, and from DNS."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import addresses
import kube
import pytest
from settings import Host

from tests.unit.podfiles import faults
from tests.unit.podfiles.fake_api import FakeApi
from tests.unit.podfiles.threads import join_threads, record_threads

SLICES = "discovery.k8s.io/endpointslices"
HOST = Host("hvd-worker-0", "hvd-worker-0.hvd", 1, "hvd-worker", "r1")
OTHER = Host("hvd-worker-1", "hvd-worker-1.hvd", 1, "hvd-worker", "r1")
IPV4, IPV6 = "10.0.0.7", "fd00::7"


def endpoint(name: str, address: str, **conditions: bool) -> dict[str, Any]:
    target = {"kind": "Pod", "name": name}
    return {"addresses": [address], "conditions": conditions, "targetRef": target}


def endpoint_slice(name: str, *endpoints: dict[str, Any], service: str = "hvd") -> dict[str, Any]:
    metadata = {"name": name, "labels": {"kubernetes.io/service-name": service}}
    return {"metadata": metadata, "addressType": "IPv4", "endpoints": list(endpoints)}


def test_ipv4_wins_over_ipv6_whatever_the_order_of_slices() -> None:
    ipv4 = {"addressType": "IPv4", "endpoints": [endpoint("hvd-worker-0", IPV4)]}
    ipv6 = {"addressType": "IPv6", "endpoints": [endpoint("hvd-worker-0", IPV6)]}
    for order in itertools.permutations([ipv4, ipv6]):
        assert addresses.pod_addresses(order) == {"hvd-worker-0": IPV4}
    assert addresses.pod_addresses([ipv6]) == {"hvd-worker-0": IPV6}


def test_terminating_endpoints_and_those_of_no_pod_are_left_out() -> None:
    slices: list[dict[str, Any]] = [
        {"endpoints": [endpoint("a-0", "10.0.0.1", ready=False)]},
        {"endpoints": [endpoint("a-1", "10.0.0.2", terminating=True)]},
        {"endpoints": [{"addresses": ["10.0.0.3"]}]},
        {"endpoints": [{"addresses": ["10.0.0.4"], "targetRef": {"kind": "Node", "name": "n"}}]},
        {"endpoints": [{**endpoint("a-5", "10.0.0.5"), "conditions": None}]},
        {"endpoints": None},
    ]
    assert addresses.pod_addresses(slices) == {"a-0": "10.0.0.1", "a-5": "10.0.0.5"}


@pytest.fixture
def followers(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that follow EndpointSlices."""
    return record_threads(addresses, monkeypatch)


@pytest.fixture
def source(
    api_server: FakeApi, followers: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> Iterator[addresses.SliceAddresses]:
    """The Service's slices, one pod at first, followed."""
    monkeypatch.setattr(addresses, "RECONNECT_EVERY", 0.01)
    api_server.put(SLICES, endpoint_slice("s1", endpoint(HOST.name, IPV4)))
    api_server.put(SLICES, endpoint_slice("x", endpoint(OTHER.name, IPV4), service="other"))
    followed = addresses.SliceAddresses(kube.Api(), "hvd")
    followed.start()
    api_server.wait_for_watch(SLICES)
    yield followed
    followed.close()


def wait_for(source: addresses.SliceAddresses, condition: Callable[[], bool]) -> None:
    with source.changed:
        assert source.changed.wait_for(condition, faults.PATIENCE)


def test_slices_are_read_before_start_returns(source: addresses.SliceAddresses) -> None:
    assert source.find(HOST) == IPV4
    assert source.find(OTHER) is None, "a slice of another Service"


def test_slices_that_are_added_changed_and_deleted_are_followed(
    source: addresses.SliceAddresses, api_server: FakeApi
) -> None:
    api_server.put(SLICES, endpoint_slice("s2", endpoint(OTHER.name, "10.0.0.8")))
    wait_for(source, lambda: source.find(OTHER) == "10.0.0.8")
    assert source.find(HOST) == IPV4
    api_server.put(SLICES, endpoint_slice("s1", endpoint(HOST.name, "10.0.0.9")))
    wait_for(source, lambda: source.find(HOST) == "10.0.0.9")
    api_server.remove(SLICES, "s1")
    wait_for(source, lambda: source.find(HOST) is None)
    assert source.find(OTHER) == "10.0.0.8"
    assert len(api_server.asked("GET", SLICES)) == 2, "one list and one watch are enough"


@pytest.mark.parametrize(
    "break_off",
    [
        lambda api: api.end_watches(),
        lambda api: api.end_watches(faults.cut_chunk),
        lambda api: api.end_watches(faults.cut_line),
        lambda api: api.end_watches(faults.reset),
        lambda api: api.expire(),
    ],
    ids=["server's limit", "cut chunk", "cut line", "reset", "410 event"],
)
def test_the_follower_goes_on_after_a_watch_ends(
    source: addresses.SliceAddresses, api_server: FakeApi, break_off: Callable[[FakeApi], None]
) -> None:
    break_off(api_server)
    api_server.wait_for_watch(SLICES, 2)
    api_server.put(SLICES, endpoint_slice("s1", endpoint(HOST.name, "10.0.0.9")))
    wait_for(source, lambda: source.find(HOST) == "10.0.0.9")


@pytest.mark.parametrize(
    "failure",
    [faults.status(503), faults.status(429, Retry_After="1"), faults.status(410),
     faults.reset, faults.cut_answer],
    ids=["503", "429", "410", "reset", "cut"],
)  # fmt: skip
def test_the_follower_goes_on_when_it_cannot_list_for_a_while(
    source: addresses.SliceAddresses,
    api_server: FakeApi,
    failure: faults.Failure,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api_server.fail("GET", SLICES, failure, times=3)
    api_server.end_watches()
    api_server.remove(SLICES, "s1")
    wait_for(source, lambda: source.find(HOST) is None)
    assert capsys.readouterr().out.count("cannot watch the hosts' addresses") == 3


def test_a_version_that_is_too_old_is_not_watched_again(
    source: addresses.SliceAddresses, api_server: FakeApi
) -> None:
    api_server.put(SLICES, endpoint_slice("s2", endpoint(OTHER.name, "10.0.0.8")))
    wait_for(source, lambda: source.find(OTHER) is not None)
    api_server.expire()
    api_server.wait_for_watch(SLICES, 2)
    requests = api_server.asked("GET", SLICES)
    versions = [item.query["resourceVersion"] for item in requests if "watch" in item.query]
    assert int(versions[1]) > int(versions[0])


def test_slices_that_cannot_be_listed_at_the_start_are_an_error(api_server: FakeApi) -> None:
    api_server.fail("GET", SLICES, faults.status(403))
    with pytest.raises(kube.ApiError, match="403"):
        addresses.SliceAddresses(kube.Api(), "hvd").start()


def test_a_closed_follower_asks_no_more(
    source: addresses.SliceAddresses,
    followers: list[threading.Thread],
    api_server: FakeApi,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source.close()
    api_server.put(SLICES, endpoint_slice("s1", endpoint(HOST.name, "10.0.0.9")))
    (follower,) = followers
    assert follower.daemon, "it does not keep the process running"
    join_threads(followers)
    assert source.find(HOST) == IPV4
    assert len(api_server.requests) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("families", "expected"),
    [((IPV6, IPV4), IPV4), ((IPV4, IPV6), IPV4), ((IPV6,), IPV6), ((IPV4,), IPV4)],
)
def test_dns_prefers_ipv4_as_slices_do(
    families: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(name: str, *_: object, **__: object) -> list[object]:
        assert name == HOST.address
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, 1, 6, "", (address, 0))
            for address in families
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert addresses.DnsAddresses().find(HOST) == expected


def test_dns_returns_the_resolvers_first_choice_and_none_for_an_unknown_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [(socket.AF_INET, 1, 6, "", (f"10.0.0.{number}", 0)) for number in (3, 1, 2)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers)
    assert addresses.DnsAddresses().find(HOST) == "10.0.0.3"

    def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert addresses.DnsAddresses().find(HOST) is None


def test_dns_resolves_through_the_machines_resolver() -> None:
    local = Host("localhost", "localhost", 1, "hvd-worker", "r1")
    assert addresses.DnsAddresses().find(local) == "127.0.0.1"
