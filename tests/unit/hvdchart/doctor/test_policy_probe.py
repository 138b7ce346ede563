"""Whether a NetworkPolicy is enforced: what a pod sees that it admits to one port of another."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest

from devtools.common.waiting import wait_until
from hvdchart.doctor import policy_probe
from tests.support.fakes.faults import TIMEOUT
from tests.support.fakes.worker import FakeWorker
from tests.support.ports import find_port

ADDRESS = "127.0.0.1"
# What a port sends: the greeting, nothing, or nothing before it ends the connection. A proxy of a
# service mesh does so where it does not reach the server.
GREETING = policy_probe.GREETING
SILENT = None
ENDS = b""
Ports = Mapping[str, int]
Listen = Callable[[str, bytes | None], FakeWorker]


@pytest.fixture
def ports() -> Ports:
    """The port that the policy admits and the other one, of this machine."""
    return {"admitted": find_port(), "blocked": find_port()}


@pytest.fixture
def listen(ports: Ports) -> Iterator[Listen]:
    """Let a port send something to whoever connects; at the others, nothing listens."""
    with ExitStack() as stack:
        yield lambda name, sends: stack.enter_context(FakeWorker(sends, port=ports[name]))


def probe(
    ports: Ports, policy_timeout_seconds: float = 0.3, connect_timeout_seconds: float = TIMEOUT
) -> str:
    return policy_probe.probe(
        ADDRESS,
        **ports,
        policy_timeout_seconds=policy_timeout_seconds,
        connect_timeout_seconds=connect_timeout_seconds,
        interval_seconds=0.02,
    )


@pytest.mark.parametrize(
    ("listening", "found"),
    [
        ({"admitted": GREETING, "blocked": GREETING}, "open"),
        ({"admitted": GREETING}, "enforced"),
        ({"admitted": GREETING, "blocked": ENDS}, "enforced"),
        ({"admitted": GREETING, "blocked": SILENT}, "enforced"),
        ({"admitted": GREETING, "blocked": b"HTTP/1.1 503 Service Unavailable\r\n"}, "enforced"),
        ({"blocked": GREETING}, "unknown"),
        ({"admitted": ENDS, "blocked": ENDS}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_policy_is_enforced_if_a_pod_reaches_the_admitted_port_alone(
    listening: Mapping[str, bytes | None], found: str, listen: Listen, ports: Ports
) -> None:
    for name, sends in listening.items():
        listen(name, sends)
    # An enforced policy is found before that time. A silent port takes the time of a connection.
    policy_timeout_seconds = TIMEOUT if found == "enforced" else 0.3
    connect_timeout_seconds = 0.2 if SILENT in listening.values() else TIMEOUT
    assert probe(ports, policy_timeout_seconds, connect_timeout_seconds) == found


@pytest.mark.parametrize("connections", [1, 2])
def test_connections_that_fail_by_chance_are_no_sign_of_a_policy(
    connections: int, listen: Listen, ports: Ports
) -> None:
    listen("admitted", GREETING)
    listen("blocked", GREETING).lost = connections
    assert probe(ports) == "open"


def test_policy_may_need_seconds_to_hold(listen: Listen, ports: Ports) -> None:
    listen("admitted", GREETING)
    later = threading.Timer(0.3, listen("blocked", GREETING).close)
    later.start()
    assert probe(ports, policy_timeout_seconds=TIMEOUT) == "enforced"
    later.join()


def test_listening_pod_greets_at_both_ports_from_the_same_moment(
    ports: Ports,
) -> None:
    """Again and again, also after clients that go at once."""
    listening = threading.Thread(target=policy_probe.serve, kwargs={**ports, "seconds": 3.0})
    listening.start()
    admitted, blocked = ports.values()
    wait_until(lambda: policy_probe.is_reached(ADDRESS, admitted), TIMEOUT, "it listens")
    socket.create_connection((ADDRESS, blocked)).close()
    assert policy_probe.is_reached(ADDRESS, blocked)
    assert policy_probe.is_reached(ADDRESS, blocked)
    listening.join(TIMEOUT)
    assert not listening.is_alive()
