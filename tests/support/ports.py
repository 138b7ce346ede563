"""Ports for servers that the tested code opens itself."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

# Linux uses ports from 32768 on for connections (net.ipv4.ip_local_port_range). A connection of
# another test could take a port of that range before the server opens it.
PORTS = range(15000, 30000)


def find_port() -> int:
    """Return a port without a listener at any address, outside the range for connections."""
    while True:
        port = secrets.choice(PORTS)
        with suppress(OSError), socket.create_server(("", port)):
            return port
