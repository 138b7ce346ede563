"""Whether a host that answered is still there: a connection to its sshd stays open for that.

Nothing is sent on it. The kernels ask each other after some idle seconds (TCP keepalive), and a
kernel answers however busy its host is. That costs no CPU time on the hosts, where a connection to
sshd every few seconds would cost ten milliseconds each time.
"""

from __future__ import annotations

import socket
import struct
from typing import Iterable

# When all hosts are silent, it may be the master's own network: so many times as long.
ALL_LOST_AFTER = 5
# Seconds after which a kernel asks first, and until it asks again.
IDLE, INTERVAL = 3, 2
# Seconds within which a host that is there was heard: it is asked after IDLE seconds.
HEARD_WITHIN = 6.0
# The member tcpi_last_ack_recv of the kernel's struct tcp_info: milliseconds.
LAST_HEARD, TCP_INFO_SIZE = 56, 104


def watch(connection: socket.socket, lost_after: float) -> None:
    """Let the kernel end this connection when the other end has been silent for about so long."""
    count = max(1, int(lost_after - IDLE) // INTERVAL)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)


def is_any_responding(connections: Iterable[socket.socket | None]) -> bool:
    """Whether another end was heard just now."""
    return any(item is not None and silence(item) < HEARD_WITHIN for item in connections)


def silence(connection: socket.socket) -> float:
    """Return the seconds for which the other end has been silent."""
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_SIZE)
    milliseconds: int = struct.unpack_from("I", state, LAST_HEARD)[0]
    return milliseconds / 1000
