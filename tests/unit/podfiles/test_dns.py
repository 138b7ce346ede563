"""The hosts' addresses in DNS."""

from __future__ import annotations

import threading

import pytest

from hvd_pods.common.run import Host
from hvd_pods.master import addresses
from tests.unit.podfiles.follower import HOST, IPV4, IPV6, OTHER, RUN, Follower, Names
from tests.unit.podfiles.threads import join_threads


def test_dns_follows_names_that_appear_change_and_disappear(
    follower: Follower, names: Names, followers: list[threading.Thread]
) -> None:
    follower.start(addresses.DnsAddresses(RUN.hosts, follower.on_change))
    names[HOST.address] = ["10.0.0.3"]
    follower.wait_for(HOST, "10.0.0.3")
    names[HOST.address] = ["10.0.0.4"]
    follower.wait_for(HOST, "10.0.0.4")
    names[HOST.address] = []
    names[OTHER.address] = ["10.0.0.5"]
    follower.wait_for(OTHER, "10.0.0.5")
    assert follower.find(HOST) == "10.0.0.4", "a DNS server that is away says nothing about hosts"
    del names[HOST.address]
    follower.wait_for(HOST, None)
    follower.source.close()
    assert len(followers) == 2
    assert all(thread.daemon for thread in followers), "they do not keep the process running"
    join_threads(followers)


def test_a_thousand_names_are_looked_up_by_a_few_threads(
    follower: Follower, names: Names, followers: list[threading.Thread]
) -> None:
    hosts = [Host(f"w-{n}", f"w-{n}.hvd", 1, "w", "r1") for n in range(1000)]
    names.update({host.address: [f"10.0.{n // 256}.{n % 256}"] for n, host in enumerate(hosts)})
    follower.start(addresses.DnsAddresses(hosts, follower.on_change))
    follower.wait(lambda: len(follower.source.endpoints()) == 1000)
    assert len(followers) == addresses.DNS_THREADS
    assert follower.find(hosts[999]) == "10.0.3.231"


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([IPV6, IPV4], IPV4),
        ([IPV4, IPV6], IPV4),
        ([IPV6], IPV6),
        ([IPV4], IPV4),
        (["10.0.0.3", "10.0.0.1", "10.0.0.2"], "10.0.0.3"),
    ],
)
def test_dns_prefers_ipv4_as_slices_do_and_the_resolvers_first_choice(
    names: Names, answers: list[str], expected: str
) -> None:
    names[HOST.address] = answers
    assert addresses.resolve(HOST.address) == expected


def test_dns_resolves_through_the_machines_resolver() -> None:
    assert addresses.resolve("localhost") == "127.0.0.1"


def test_names_are_looked_up_less_often_while_nothing_changes(names: Names) -> None:
    pauses: list[float] = []
    names[HOST.address] = ["10.0.0.2"]
    answers = {4: ["10.0.0.3"], 6: [], 8: ["10.0.0.4"]}

    class Closed:
        def is_set(self) -> bool:
            return len(pauses) == 10

        def wait(self, seconds: float) -> None:
            pauses.append(seconds)
            names[HOST.address] = answers.get(len(pauses), names[HOST.address])

    source = addresses.DnsAddresses([HOST], lambda: None)
    source._closed = Closed()  # type: ignore[assignment]
    source._follow([HOST])
    # A server that does not answer (the seventh time) says nothing new.
    assert pauses == [0.5, 1.0, 2.0, 2.0, 0.5, 1.0, 2.0, 2.0, 0.5, 1.0]


def test_dns_does_not_tell_whether_the_kubelet_has_seen_a_host_listen(names: Names) -> None:
    names[HOST.address] = ["10.0.0.2"]
    source = addresses.DnsAddresses([HOST], lambda: None)
    assert source._look_up(HOST), "its address is new"
    assert source.endpoints() == {HOST.name: addresses.Endpoint("10.0.0.2", serving=False)}


def test_dns_announces_each_change_of_an_address_and_nothing_else(names: Names) -> None:
    """News wake the thread that asks hosts; without, they would wait for its next look."""
    news: list[str | None] = []

    def note() -> None:
        found = source.endpoints().get(HOST.name)
        news.append(found and found.address)

    source = addresses.DnsAddresses([HOST], note)
    # The third is a server that does not answer.
    for answers in (["10.0.0.2"], ["10.0.0.2"], [], ["10.0.0.3"], None, None):
        if answers is None:
            names.pop(HOST.address, None)
        else:
            names[HOST.address] = answers
        source._look_up(HOST)
    assert news == ["10.0.0.2", "10.0.0.3", None]
