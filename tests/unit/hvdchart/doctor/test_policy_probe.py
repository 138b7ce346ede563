"""Whether a NetworkPolicy is enforced: what a pod sees that it admits to one port of another."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from hvdchart.doctor import policy_probe
from tests.support.fakes.faults import TIMEOUT
from tests.support.fakes.worker import FakeWorker
from tests.support.ports import find_port

# What a port sends: the greeting, nothing, or nothing before it ends the connection. A proxy of a
# service mesh does so where it does not reach the server. At a closed port, nothing listens.
GREETING = policy_probe.GREETING
SILENT = None
ENDS = b""
CLOSED = b"closed"
Listen = Callable[..., FakeWorker]


@pytest.fixture(autouse=True)
def ports(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in {"SETTLES": 0.3, "PAUSE": 0.02, "WITHIN": 0.2}.items():
        monkeypatch.setattr(policy_probe, name, number)
    for name in ("ADMITTED", "GUARDED"):
        monkeypatch.setattr(policy_probe, name, find_port())


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Let a port send something to whoever connects."""
    with ExitStack() as stack:
        yield lambda port, sends: stack.enter_context(FakeWorker(sends, port=port))


@pytest.mark.parametrize(
    ("admitted", "guarded", "found"),
    [
        (GREETING, GREETING, "open"),
        (GREETING, CLOSED, "enforced"),
        (GREETING, ENDS, "enforced"),
        (GREETING, SILENT, "enforced"),
        (GREETING, b"HTTP/1.1 503 Service Unavailable\r\n", "enforced"),
        (CLOSED, GREETING, "unknown"),
        (ENDS, ENDS, "unknown"),
        (CLOSED, CLOSED, "unknown"),
    ],
)
def test_policy_is_enforced_if_a_pod_reaches_the_admitted_port_alone(
    admitted: bytes | None, guarded: bytes | None, found: str, listen: Listen
) -> None:
    for port, sends in ((policy_probe.ADMITTED, admitted), (policy_probe.GUARDED, guarded)):
        if sends != CLOSED:
            listen(port, sends)
    assert policy_probe.probe("127.0.0.1") == found


@pytest.mark.parametrize("connections", [1, 2])
def test_connections_that_fail_by_chance_are_no_sign_of_a_policy(
    connections: int, listen: Listen
) -> None:
    listen(policy_probe.ADMITTED, GREETING)
    listen(policy_probe.GUARDED, GREETING).lost = connections
    assert policy_probe.probe("127.0.0.1") == "open"


def test_policy_may_need_seconds_to_hold(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_probe, "SETTLES", TIMEOUT)
    listen(policy_probe.ADMITTED, GREETING)
    later = threading.Timer(0.3, listen(policy_probe.GUARDED, GREETING).close)
    later.start()
    assert policy_probe.probe("127.0.0.1") == "enforced"
    later.join()


def test_pod_that_listens_greets_at_the_guarded_port_once_it_does_at_the_admitted_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Again and again, also after clients that go at once."""
    listening = threading.Thread(target=policy_probe.main, args=["listen"])
    listening.start()
    try:
        until = time.monotonic() + TIMEOUT
        while not policy_probe.is_reached("127.0.0.1", policy_probe.ADMITTED):
            assert time.monotonic() < until
        socket.create_connection(("127.0.0.1", policy_probe.GUARDED)).close()
        for _ in range(2):
            assert policy_probe.is_reached("127.0.0.1", policy_probe.GUARDED)
    finally:
        monkeypatch.setattr(policy_probe, "LISTENS", 0.0)
        listening.join(TIMEOUT)
    assert not listening.is_alive()
