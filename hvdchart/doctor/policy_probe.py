"""Test with two pods whether a NetworkPolicy that admits one port of the first is enforced.

Standard library only, for Python 3.8 and newer: `doctor --probe-policies` sends this file's text to
the image's own interpreter. With `listen`, it listens on both ports. With `connect ADDRESS`, it
prints MARK and its result. hvdchart.doctor.policies has the policy.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time
from contextlib import ExitStack, suppress

# The start of the line with the result, and the greeting that the ports send to each client.
MARK = "HVD-POLICY-PROBE "
GREETING = MARK.encode()
# The port that the policy admits, and a port that it blocks. The first one shows that the other pod
# listens.
ADMITTED = 20001
GUARDED = 20002
# Seconds for the network to apply a new policy, seconds for a connection, seconds between two
# attempts, and seconds that the first pod listens.
SETTLES = 20.0
WITHIN = 2.0
PAUSE = 0.5
LISTENS = 600.0
# The number of consecutive failed connections that cannot be a coincidence.
IN_A_ROW = 3
# Connections that are not accepted yet.
BACKLOG = 1024


def is_reached(address: str, port: int, within: float = WITHIN) -> bool:
    """Return whether the other pod is reached: it sends the greeting to each client.

    An accepted connection is no proof: the proxy of a service mesh accepts it in the client's own
    pod, before it connects to the other pod.
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
    """Return the result for a pod that the policy admits to one port: enforced, open or unknown."""
    until = time.monotonic() + settles
    found = "unknown"
    failed = 0
    # A series of failures is continued to its end, even after the time limit.
    while failed or time.monotonic() < until:
        # Before and after each failure, check that the other pod listens.
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
    """Send the greeting to each client of one of the ports, for so many seconds.

    One loop serves both ports: while the admitted port answers, the guarded one does, too.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for port in (guarded, admitted):
            server = stack.enter_context(_listen(port))
            selector.register(server, selectors.EVENT_READ, server)
        while time.monotonic() - began < seconds:
            for key, _ in selector.select(PAUSE):
                # A client may have disconnected.
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
