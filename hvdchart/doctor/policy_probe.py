"""Finds out from two pods whether a NetworkPolicy is enforced that admits one port of the first.

Standard library only, for Python 3.8 and newer: `doctor --probe-policies` sends this file's text to
the image's own interpreter. With `listen`, it listens on both ports; with `connect ADDRESS`, it
prints MARK and what it has found. hvdchart.doctor.policies has the policy.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time
from contextlib import ExitStack, suppress

# How the line begins that has what was found, and what the ports send to whoever connects.
MARK = "HVD-POLICY-PROBE "
GREETING = MARK.encode()
# The port that the policy admits, by which a pod sees that the other one listens, and another one.
ADMITTED = 20001
GUARDED = 20002
# Seconds that the network has to follow a new policy, that a connection may take, between two
# looks, and that the first pod listens.
SETTLES = 20.0
WITHIN = 2.0
PAUSE = 0.5
LISTENS = 600.0
# Failed connections one after another that are no chance.
IN_A_ROW = 3
# Connections that nobody accepts.
BACKLOG = 1024


def is_reached(address: str, port: int, within: float = WITHIN) -> bool:
    """Whether the other pod is reached, which sends the greeting to whoever connects.

    That a connection is accepted says nothing: the proxy of a service mesh accepts it in the
    client's own pod, before it connects to the other one.
    """
    try:
        connection = socket.create_connection((address, port), within)
        with connection, connection.makefile("rb") as stream:
            return stream.read(len(GREETING)) == GREETING
    except OSError:
        return False


def probe(
    address: str,
    admitted: int = ADMITTED,
    guarded: int = GUARDED,
    settles: float = SETTLES,
    within: float = WITHIN,
    pause: float = PAUSE,
) -> str:
    """What a pod sees that the policy admits to one port: enforced, open or unknown."""
    until = time.monotonic() + settles
    found = "unknown"
    failed = 0
    # Failures that have begun are followed to the last one, which may come after the time.
    while failed or time.monotonic() < until:
        # Before and after each failure: the other pod listens.
        if not is_reached(address, admitted, within):
            failed = 0
        elif failed == IN_A_ROW:
            return "enforced"
        elif is_reached(address, guarded, within):
            failed = 0
            found = "open"
        else:
            failed += 1
        time.sleep(pause)
    return found


def serve(admitted: int = ADMITTED, guarded: int = GUARDED, seconds: float = LISTENS) -> None:
    """Send the greeting to whoever connects to one of the ports, for so many seconds.

    One loop has both ports: as long as the admitted one answers, the guarded one does.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for port in (guarded, admitted):
            server = stack.enter_context(_listen(port))
            selector.register(server, selectors.EVENT_READ, server)
        while time.monotonic() - began < seconds:
            for key, _ in selector.select(PAUSE):
                # A client may have gone.
                with suppress(OSError), key.data.accept()[0] as connection:
                    connection.sendall(GREETING)


def _listen(port: int) -> socket.socket:
    """Listen on a port of all addresses."""
    if socket.has_dualstack_ipv6():
        server = socket.create_server(
            ("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
        )
    else:
        server = socket.create_server(("", port), backlog=BACKLOG)
    server.setblocking(False)
    return server


def main(*arguments: str) -> None:
    """Listen, or connect and print what was found."""
    if arguments[0] == "connect":
        print(MARK + probe(arguments[1]), flush=True)
    else:
        serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
