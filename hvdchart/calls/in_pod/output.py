"""Send a rank's output to the call server directly, not through the launcher.

A launcher passes on parts of lines, which mix with those of other ranks, and waits for each process
that holds the rank's output open. Here, a separate process reads the output of the rank and its
helpers. So the last output of a rank that crashes arrives, and helper processes do not delay the
end. This process outlives the rank, so it also reports whether the container ran out of memory.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from hvd_pods.shared import container_memory
from hvdchart.calls.in_pod import wire

OUTPUT_CHUNK_BYTES = 1 << 16
# Seconds between checks whether the rank has ended, and seconds to read the output of helpers after
# that.
RANK_END_POLL_INTERVAL_SECONDS = 0.5
HELPER_OUTPUT_TIMEOUT_SECONDS = 1.0
# The connection that reports the memory limit, after those of wire.RANK_STREAMS, and seconds for
# the answer.
MEMORY = 3
MEMORY_ANSWER_TIMEOUT_SECONDS = 3.0


def divert(connect: Callable[..., socket.socket]) -> None:
    """Redirect the standard output and the standard error of this process to the call server.

    `connect` opens the connection for the stream of a number, or for MEMORY and the limit. Raises
    OSError when it cannot.
    """
    parent = os.getpid()
    killed = container_memory.count_killed()
    connections = {number: connect(number) for number in wire.RANK_STREAMS}
    sources = {}
    for number in wire.RANK_STREAMS:
        source, target = os.pipe()
        sources[source] = connections[number]
        os.dup2(target, number)
        os.close(target)
    if os.fork() == 0:
        try:
            _hold_nothing()
            carry(sources, parent)
            limit = container_memory.limit()
            if limit is not None and container_memory.count_killed() > killed:
                # The server waits for the end of the streams, which are still open.
                connection = connect(MEMORY, limit)
                connection.settimeout(MEMORY_ANSWER_TIMEOUT_SECONDS)
                connection.recv(1)
        finally:
            os._exit(0)
    for source, connection in sources.items():
        os.close(source)
        connection.close()


def _hold_nothing() -> None:
    """Close all files shared with the rank, and outlive the rank to send its last output."""
    # A launcher kills the process group of the rank.
    os.setsid()
    for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sent, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)


def carry(sources: Mapping[int, socket.socket], parent: int) -> None:
    """Send the output of each pipe until all writers close it, or the rank ends.

    If the server is gone, continue to read: a full pipe would block the rank.
    """
    until = float("inf")
    with selectors.DefaultSelector() as selector:
        for source, connection in sources.items():
            selector.register(source, selectors.EVENT_READ, connection)
        while selector.get_map() and time.monotonic() < until:
            ready = selector.select(RANK_END_POLL_INTERVAL_SECONDS)
            for key, _ in ready:
                data = os.read(key.fd, OUTPUT_CHUNK_BYTES)
                if not data:
                    selector.unregister(key.fd)
                with suppress(OSError):
                    key.data.sendall(data)
            if os.getppid() != parent:
                if not ready:
                    return
                until = min(until, time.monotonic() + HELPER_OUTPUT_TIMEOUT_SECONDS)
