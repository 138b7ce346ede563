"""The server for ports that anybody can reach, attacked over TCP."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import ExitStack, suppress

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.pod.connections import ConnectionServer, Limits
from tests.support.fakes.faults import TIMEOUT

LIMITS = Limits(TIMEOUT, 4096, 16)
LONG = b"x" * 10_000_000


def answer(line: bytes, connection: socket.socket) -> bytes | None:
    """Repeat a line, unless it asks for something else."""
    if line == b"defect":
        raise ValueError("on purpose")
    if line == b"keep":
        connection.sendall(b"kept")
        connection.close()
        return None
    return LONG if line == b"long" else line


def start(limits: Limits = LIMITS) -> int:
    """Start a server, and return its port."""
    server = ConnectionServer("127.0.0.1", 0, b"\n", answer, limits)
    threading.Thread(target=server.serve, daemon=True).start()
    return server.port


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), TIMEOUT)


def read(connection: socket.socket) -> bytes:
    """All bytes until the end."""
    return b"".join(iter(lambda: connection.recv(1 << 20), b""))


def ask(port: int, line: bytes) -> bytes:
    with connect(port) as connection:
        connection.sendall(line + b"\n")
        return read(connection)


def has_ended_or_sends(connection: socket.socket) -> bool:
    """Whether a connection has ended; otherwise, it sends a byte."""
    has_ended = bool(select.select([connection], [], [], 0)[0])
    return has_ended or not connection.send(b" ")


def test_request_may_come_in_parts_and_its_connection_be_kept() -> None:
    port = start()
    with connect(port) as connection:
        connection.sendall(b"he")
        assert ask(port, b"keep") == b"kept"
        connection.sendall(b"llo\nmore")
        assert read(connection) == b"hello"


@pytest.mark.promise("clients that send slowly or nothing or do not read are given up")
def test_clients_that_send_slowly_or_nothing_or_do_not_read_are_given_up() -> None:
    """A byte at a time does not give a connection more time."""
    port = start(limits=Limits(1.0, 4096, 16))
    with connect(port) as silent, connect(port) as slow, connect(port) as deaf:
        deaf.sendall(b"long\n")
        # Its last byte may come after the end.
        with suppress(OSError):
            wait_until(lambda: has_ended_or_sends(slow), TIMEOUT, "it is given up", 0.01)
        assert silent.recv(1) == b""
        assert len(read(deaf)) < len(LONG)
    assert ask(port, b"hello") == b"hello"


def test_long_answer_is_sent_at_the_pace_of_the_client() -> None:
    with connect(start()) as connection:
        connection.sendall(b"long\n")
        begin = connection.recv(1)
        connection.sendall(b"more")
        assert begin + read(connection) == LONG


def test_request_that_is_too_long_is_not_answered() -> None:
    port = start()
    with connect(port) as connection:
        connection.sendall(b" " * 4096)
        assert connection.recv(1) == b""
    assert ask(port, b"hello") == b"hello"


@pytest.mark.promise("oldest connection makes room for a new one")
def test_oldest_connection_makes_room_for_a_new_one() -> None:
    """Silent connections, of which anybody can make many, keep no client away."""
    port = start(limits=Limits(TIMEOUT, 4096, 3))
    before = {*threading.enumerate()}
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(port)) for _ in range(4)]
        assert silent[0].recv(1) == b""
        assert ask(port, b"hello") == b"hello"
        assert silent[1].recv(1) == b""
        assert {*threading.enumerate()} <= before, "no connection has a thread"


def test_defect_of_the_answer_ends_one_connection_and_is_logged_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    port = start()
    assert [ask(port, line) for line in (b"defect", b"defect", b"hello")] == [b"", b"", b"hello"]
    said = f" port {port}: ValueError('on purpose')"
    assert capsys.readouterr().out.count(said) == 1
