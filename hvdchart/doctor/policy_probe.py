"""Test with two pods whether a NetworkPolicy that admits one port of the first is enforced.

Standard library only, for Python 3.8 and newer: `doctor --probe-policies` sends this file's text to
the image's own interpreter. With `listen`, it listens on both ports. With `connect ADDRESS`, it
prints POLICY_PROBE_MARK and its result. hvdchart.doctor.policies has the policy.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time
from contextlib import ExitStack, suppress

# The start of the line with the result, and the greeting that the ports send to each client.
POLICY_PROBE_MARK = "HVD-POLICY-PROBE "
GREETING = POLICY_PROBE_MARK.encode()
# The port that the policy admits, and a port that it blocks. The first one shows that the other pod
# listens.
ADMITTED_PORT = 20001
BLOCKED_PORT = 20002
# Seconds for the network to apply a new policy, seconds for a connection, seconds between two
# attempts, and seconds that the first pod listens.
POLICY_TIMEOUT_SECONDS = 20.0
CONNECT_TIMEOUT_SECONDS = 2.0
ATTEMPT_INTERVAL_SECONDS = 0.5
LISTEN_SECONDS = 600.0
# The number of consecutive failed connections that cannot be a coincidence.
CONSECUTIVE_FAILURES = 3
# Connections that are not accepted yet.
BACKLOG_CONNECTIONS = 1024


def is_reached(
    address: str, port: int, connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS
) -> bool:
    """Return whether the other pod is reached: it sends the greeting to each client.

    An accepted connection is no proof: the proxy of a service mesh accepts it in the client's own
    pod, before it connects to the other pod.
    """
    try:
        connection = socket.create_connection((address, port), connect_timeout_seconds)
        with connection, connection.makefile("rb") as stream:
            return stream.read(len(GREETING)) == GREETING
    except OSError:
        return False


def probe(
    address: str,
    admitted: int = ADMITTED_PORT,
    blocked: int = BLOCKED_PORT,
    policy_timeout_seconds: float = POLICY_TIMEOUT_SECONDS,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
    interval_seconds: float = ATTEMPT_INTERVAL_SECONDS,
) -> str:
    """Return the result for a pod that the policy admits to one port: enforced, open or unknown."""
    until = time.monotonic() + policy_timeout_seconds
    result = "unknown"
    failed = 0
    # A series of failures is continued to its end, even after the time limit.
    while failed or time.monotonic() < until:
        # Before and after each failure, check that the other pod listens.
        if not is_reached(address, admitted, connect_timeout_seconds):
            failed = 0
        elif failed == CONSECUTIVE_FAILURES:
            return "enforced"
        elif is_reached(address, blocked, connect_timeout_seconds):
            failed = 0
            result = "open"
        else:
            failed += 1
        time.sleep(interval_seconds)
    return result


def serve(
    admitted: int = ADMITTED_PORT, blocked: int = BLOCKED_PORT, seconds: float = LISTEN_SECONDS
) -> None:
    """Send the greeting to each client of one of the ports, for so many seconds.

    One loop serves both ports: while the admitted port answers, the blocked one does, too.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for port in (blocked, admitted):
            server = stack.enter_context(_listen(port))
            selector.register(server, selectors.EVENT_READ, server)
        while time.monotonic() - began < seconds:
            for key, _ in selector.select(ATTEMPT_INTERVAL_SECONDS):
                # A client may have disconnected.
                with suppress(OSError), key.data.accept()[0] as connection:
                    connection.sendall(GREETING)


def _listen(port: int) -> socket.socket:
    """Listen on a port of all addresses."""
    if socket.has_dualstack_ipv6():
        server = socket.create_server(
            ("::", port), family=socket.AF_INET6, backlog=BACKLOG_CONNECTIONS, dualstack_ipv6=True
        )
    else:
        server = socket.create_server(("", port), backlog=BACKLOG_CONNECTIONS)
    server.setblocking(False)
    return server


def main(*arguments: str) -> None:
    """Listen, or connect and print what was found."""
    if arguments[0] == "connect":
        print(POLICY_PROBE_MARK + probe(arguments[1]), flush=True)
    else:
        serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
