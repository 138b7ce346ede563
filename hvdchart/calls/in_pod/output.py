"""Carries what a rank prints to the call server, past the launcher.

A launcher passes on pieces of lines, which mix with those of other ranks, and waits for the end of
each process that holds the rank's output. Here, a process of its own reads what the rank and its
helpers write. So the last words of a rank that crashes arrive, and helpers keep nobody waiting. As
this process outlives the rank, it also tells whether memory was short.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from hvd_pods.common import container_memory

CHUNK = 1 << 16
# Seconds between two looks whether the rank has ended, and for what helpers write after that.
LOOK_EVERY = 0.5
LAST_WORDS_WITHIN = 1.0
STANDARD_OUTPUT = 1
STANDARD_ERROR = 2
# Beside the streams: the connection that tells a memory limit, and seconds for the answer.
MEMORY = 3
TELL_WITHIN = 3.0


def divert(connect: Callable[..., socket.socket]) -> None:
    """Let the standard output and the standard error of this process go to the call server.

    `connect` makes the connection for the stream of a number, or for MEMORY and the limit. Raises
    OSError when it cannot.
    """
    parent = os.getpid()
    killed = container_memory.count_killed()
    streams = (STANDARD_OUTPUT, STANDARD_ERROR)
    connections = {number: connect(number) for number in streams}
    sources = {}
    for number in streams:
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
                connection.settimeout(TELL_WITHIN)
                connection.recv(1)
        finally:
            os._exit(0)
    for source, connection in sources.items():
        os.close(source)
        connection.close()


def _hold_nothing() -> None:
    """Let this process hold nothing of the rank's, and outlive it for its last words."""
    # A launcher ends the group of the rank.
    os.setsid()
    for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sent, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)


def carry(sources: Mapping[int, socket.socket], parent: int) -> None:
    """Send what comes from each pipe, until nobody can write to it, or the rank has ended.

    What comes when the server has gone is read all the same: the rank would wait for that.
    """
    until = float("inf")
    with selectors.DefaultSelector() as selector:
        for source, connection in sources.items():
            selector.register(source, selectors.EVENT_READ, connection)
        while selector.get_map() and time.monotonic() < until:
            ready = selector.select(LOOK_EVERY)
            for key, _ in ready:
                data = os.read(key.fd, CHUNK)
                if not data:
                    selector.unregister(key.fd)
                with suppress(OSError):
                    key.data.sendall(data)
            if os.getppid() != parent:
                if not ready:
                    return
                until = min(until, time.monotonic() + LAST_WORDS_WITHIN)
