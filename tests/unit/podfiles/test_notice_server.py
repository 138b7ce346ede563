"""What the master takes for a notice of a worker, and what it ignores."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from hvd_pods.master import notice_server

Notices = queue.Queue[dict[str, Any]]


@pytest.fixture
def taken() -> Notices:
    return queue.Queue()


@pytest.fixture
def server(taken: Notices, monkeypatch: pytest.MonkeyPatch) -> Iterator[notice_server.Server]:
    monkeypatch.setenv("HVD_NOTICES", "")
    monkeypatch.setenv("HVD_EPOCH", "7")
    with notice_server.Server("127.0.0.1", taken.put) as running:
        yield running
        running.shutdown()


GARBAGE = {
    "nothing": b"",
    "no JSON": b"GET / HTTP/1.1\r\n",
    "no text": b"\xff\xfe\n",
    "a number": b"3\n",
    "a list": b"[]\n",
    "no secret": b'{"kind": "leaving", "epoch": "7"}\n',
    "a number as secret": b'{"kind": "leaving", "epoch": "7", "secret": 3}\n',
    "another secret": b'{"kind": "leaving", "epoch": "7", "secret": "a"}\n',
}


@pytest.mark.parametrize("line", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_notice_of_this_run_is_ignored(
    server: notice_server.Server, taken: Notices, line: bytes
) -> None:
    """Such as what a scanner of ports sends: it prints no traceback into the run's log."""
    with socket.socket() as connection:
        server.receive(line, connection)
    assert taken.empty(), "the master acted on something that is no notice of its workers"


def test_a_sender_that_sends_nothing_is_given_up(
    server: notice_server.Server, taken: Notices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one whose node was lost: it prints no traceback into the run's log either."""
    monkeypatch.setattr(notice_server._Handler, "timeout", 0.01)
    sender, own = socket.socketpair()
    with sender, own:
        notice_server._Handler(own, ("192.0.2.1", 1), server)
    assert taken.empty()
