"""Connections that tell whether a host is still there: real sockets."""

from __future__ import annotations

import socket

import pytest

from hvd_pods.master import liveness, probing
from tests.fakes.faults import TIMEOUT
from tests.waiting import wait_until


def test_the_kernel_asks_an_idle_host_and_gives_it_up_within_the_time() -> None:
    """Three seconds may have passed since the last answer when the network is cut."""
    with socket.socket() as connection:
        for lost_after, asked in ((12.0, 4), (60.0, 28), (1.0, 1)):
            liveness.watch(connection, lost_after)
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            idle, interval, count = (
                connection.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert (idle, interval, count) == (3, 2, asked)


def test_a_host_that_is_cut_off_is_lost_within_fifteen_seconds_by_default() -> None:
    """The chart's default is 12 s (tests/chart/test_spares.py)."""
    asked = max(1, int(12 - liveness.IDLE) // liveness.INTERVAL)
    assert liveness.IDLE + asked * liveness.INTERVAL <= 12
    # From then on, each attempt to connect takes its whole time.
    assert 12 + probing.PROBE_TIMEOUT + probing.SUSPECT_EVERY <= 15


@pytest.mark.slow
def test_a_host_is_heard_when_its_kernel_answers() -> None:
    """Its process does nothing."""
    assert not liveness.is_any_responding([None])
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as connection,
    ):
        wait_until(lambda: liveness.silence(connection) > 0.1, TIMEOUT, "time passes")
        assert liveness.is_any_responding([None, connection])

        def is_answered() -> bool:
            connection.sendall(b"x")
            return liveness.silence(connection) < 0.1

        wait_until(is_answered, TIMEOUT, "an answer")
