"""Ports for servers that the tested code opens itself."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

# Linux takes the ports of connections from 32768 on (net.ipv4.ip_local_port_range). A port of
# that range can be taken by any connection of another test before the server opens it.
PORTS = range(15000, 30000)


def find_port() -> int:
    """Return a port at which nothing listens, at any address, and that no connection gets."""
    while True:
        port = secrets.choice(PORTS)
        with suppress(OSError), socket.create_server(("", port)):
            return port
