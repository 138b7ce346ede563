"""What the master takes for a notice of a worker, over TCP, and what it refuses.

Training code and other pods of the network can reach its port.
"""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hvd_pods.master import notice_server
from hvd_pods.master.notice_server import NoticeServer
from hvd_pods.pod import notices
from hvd_pods.rules.events import NoticeTaken
from hvd_pods.shared import notice_kinds
from hvd_pods.shared.untrusted import printable
from tests.support.fakes.faults import TIMEOUT
from tests.support.runs import make_run
from tests.unit.hvd_pods.rules.recorded_events import RecordedEvents

Background = Callable[..., Future[Any]]
FROM = {"worker": "hvd-cpu-0", "rank": 1}
ASKED = {"kind": notice_kinds.ASKED, **FROM}
STOPPED = {"kind": notice_kinds.STOPPED, **FROM, "seconds": 9.0, "period": 60.0}


class Port(RecordedEvents):
    """A notice server in the second attempt, with fence number 7, as its senders find it."""

    def __init__(self, own_address: str = "127.0.0.1") -> None:
        super().__init__()
        self.server = NoticeServer(own_address, make_run(), self, TIMEOUT)
        self.server.begin(2, 7)
        self.variable = self.server.address
        host, port, self.secret = self.variable.split(",")
        self.address = (host, int(port))

    def send(self, **content: object) -> None:
        """Send a notice as workers do, and wait until the master has closed the connection."""
        notices.send(self.variable, "7", TIMEOUT, **content)

    def send_each(self, contents: Iterable[dict[str, Any]], **more: object) -> None:
        """Send one notice after the other, with `more` beside what it contains."""
        for content in contents:
            self.send(**content, **more)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, TIMEOUT)

    def write(self, line: bytes) -> None:
        """Send any bytes, and wait until the master has closed the connection."""
        with self.connect() as connection:
            connection.sendall(line)
            assert connection.recv(1) == b""

    def taken(self) -> list[Any]:
        """The notices until now; a server that no longer works fails the test."""
        self.send(**ASKED)
        *before, last = [event.notice for event in self.of(NoticeTaken)]
        assert last == ASKED
        return before


@pytest.fixture
def port() -> Port:
    return Port()


def with_secret(port: Port, **content: object) -> bytes:
    return json.dumps({"secret": port.secret, "fence": "7", **content}).encode() + b"\n"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_notices_of_each_kind_are_taken_with_what_belongs_to_it(address: str) -> None:
    port = Port(address)
    sent: list[Any] = [
        {"kind": notice_kinds.RAISED, **FROM, "text": "ValueError: é"},
        {"kind": notice_kinds.FAILED, **FROM, "status": -9},
        {"kind": notice_kinds.FINISHED, **FROM},
        {"kind": notice_kinds.ENDED, **FROM},
        STOPPED,
        {**STOPPED, "kind": notice_kinds.IDLE},
        {"kind": notice_kinds.LEAVING, "worker": "hvd-gpu-0", "rank": -1, "seconds": 30.0},
    ]
    port.send_each(sent, more="left out")
    assert port.events == [NoticeTaken(2, content) for content in sent]


def test_notice_that_waits_is_answered_when_it_is_released(
    port: Port, background: Background
) -> None:
    """The end of the connection is the answer."""

    def wait(rank: int) -> Future[None]:
        sent: Future[None] = background(port.send, **{**ASKED, "rank": rank}, waits=True)
        port.wait_for(NoticeTaken, rank + 1)
        return sent

    waiting = [wait(0), wait(1)]
    first, second = (event.connection for event in port.of(NoticeTaken))
    assert 0 < first < second
    # Neither one that did not wait nor one that was answered before is a mistake.
    port.server.release([0, second])
    waiting[1].result(TIMEOUT)
    assert not waiting[0].done()
    port.server.release([first, second])
    waiting[0].result(TIMEOUT)


REFUSED = {
    "no JSON": "GET / HTTP/1.1",
    "no text": "\udcff\udcfe",
    "no secret": json.dumps({"fence": "7", **ASKED}),
    "another secret": json.dumps({"secret": "0" * 32, "fence": "7", **ASKED}),
    # Only what begins with the secret is parsed at all.
    "secret too late": json.dumps({"fence": "7", **ASKED, "secret": "SECRET"}),
    "list after the secret": '{"secret": "SECRET"}, []',
    "nested brackets": '{"secret": "SECRET", "fence": ' + "[" * 3900,
}


@pytest.mark.parametrize("line", REFUSED.values(), ids=REFUSED)
@pytest.mark.promise("what is no notice of this run is refused")
def test_what_is_no_notice_of_this_run_is_refused(port: Port, line: str) -> None:
    port.write(line.replace("SECRET", port.secret).encode(errors="surrogateescape") + b"\n")
    assert port.taken() == []


# The run has eight ranks.
WRONG: dict[str, list[Any]] = {
    "fence": ["6", 7],
    "kind": ["unknown", ["stopped"]],
    "worker": ["hvd-cpu-9", ["hvd-cpu-0"]],
    "rank": [True, 1.0, -2, 8],
    "seconds": ["9", -1.0, float("nan"), 10**400],
    "period": [None],
}
CHANGES = [{name: value} for name, values in WRONG.items() for value in values]
CHANGES += [
    {"kind": notice_kinds.RAISED, "text": ["a"]},
    {"kind": notice_kinds.FAILED, "status": 256},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_notice_with_a_wrong_value_is_refused(port: Port, change: dict[str, Any]) -> None:
    port.write(with_secret(port, **{**STOPPED, **change}))
    assert port.taken() == []
    port.write(with_secret(port, **STOPPED))
    assert port.of(NoticeTaken)[-1].notice == STOPPED


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text())
CONTENTS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(sorted(notice_server.FIELDS)),
        "worker": st.just("hvd-cpu-0") | VALUES,
    },
    optional=dict.fromkeys(["rank", "text", "status", "seconds", "period", "waits"], VALUES),
)


@pytest.mark.fuzz
@settings(suppress_health_check=list(HealthCheck))
@given(CONTENTS.map(lambda content: json.dumps(content)[1:].encode()) | st.binary())
def test_any_line_with_the_secret_is_a_complete_notice_or_none(port: Port, rest: bytes) -> None:
    port.events.clear()
    start = json.dumps({"secret": port.secret, "fence": "7"})[:-1].encode()
    with port.connect() as connection:
        connection.sendall(start + b", " + rest.replace(b"\n", b"")[:3000] + b"\n")
    taken = port.taken()
    assert [notice.keys() for notice in taken] == [
        {"kind", "worker", "rank", *notice_server.FIELDS[notice["kind"]]} for notice in taken
    ]
    values = [str(value) for notice in taken for value in notice.values()]
    assert all(printable(value, "") == value and len(value) < 7000 for value in values)


def test_ranks_that_wait_are_limited(port: Port) -> None:
    """Training code knows the secret, and the master's files are limited."""

    # The run has eight ranks.
    def wait(number: int) -> socket.socket:
        connection = port.connect()
        connection.sendall(with_secret(port, **ASKED, waits=True))
        port.wait_for(NoticeTaken, number + 1)
        return connection

    waiting = [wait(number) for number in range(9)]
    assert waiting[0].recv(1) == b""
    assert select.select(waiting[1:], [], [], 0)[0] == []
