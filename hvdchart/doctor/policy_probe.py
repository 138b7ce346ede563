"""Finds out from two pods whether a NetworkPolicy is enforced that admits one port of the first.

Standard library only, for Python 3.8 and newer: `doctor --probe-policies` sends this file's text to
the image's own interpreter. With `listen`, it listens on both ports; with `connect ADDRESS`, it
prints MARK and what it has found. hvdchart.doctor.policies has the policy.
"""

import socket
import sys
import time

MARK = "HVD-POLICY-PROBE "
# The port that the policy admits, by which a pod sees that the other one listens, and another one.
ADMITTED = 20001
GUARDED = 20002
# Seconds that the network has to follow a new policy, that a connection may take, between two
# looks, and that the first pod listens.
SETTLES = 20.0
WITHIN = 2.0
PAUSE = 0.5
LISTENS = 600.0
# Connections that nobody accepts.
BACKLOG = 1024


def serve(port: int) -> socket.socket:
    """Listen on a port of all addresses."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
        )
    return socket.create_server(("", port), backlog=BACKLOG)


def is_open(address: str, port: int) -> bool:
    """Whether a connection is accepted."""
    try:
        socket.create_connection((address, port), WITHIN).close()
    except OSError:
        return False
    return True


def probe(address: str) -> str:
    """What a pod sees that the policy admits to one port: enforced, open or unknown."""
    until = time.monotonic() + SETTLES
    found = "unknown"
    while time.monotonic() < until:
        # Before and after: the other pod listens, and its guarded port is not closed by chance.
        if is_open(address, ADMITTED):
            is_shut = not is_open(address, GUARDED)
            if is_shut and is_open(address, ADMITTED):
                return "enforced"
            found = found if is_shut else "open"
        time.sleep(PAUSE)
    return found


def main(*arguments: str) -> None:
    """Listen, or connect and print what was found."""
    if arguments[0] == "connect":
        print(MARK + probe(arguments[1]), flush=True)
        return
    # Whoever reaches the admitted port knows that the guarded one listens.
    servers = [serve(GUARDED), serve(ADMITTED)]
    time.sleep(LISTENS)
    for server in servers:
        server.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
