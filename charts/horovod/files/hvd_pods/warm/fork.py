"""Forks of the warm process: a guard, and the rank that it starts, watches and ends.

A guard is needed because only a parent learns how a process ended, and because the launcher knows
the client alone: when that is killed, the guard kills the rank and all that the rank has started.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from pathlib import Path
from typing import NoReturn

from hvd_pods.common.fast_start import (
    PR_SET_CHILD_SUBREAPER,
    die_with_parent,
    ended_children,
    processes,
    set_process_option,
)
from hvd_pods.common.fence import GUARD
from hvd_pods.rank import warm_client
from hvd_pods.rank.warm_client import GO

COMM = Path("/proc/self/comm")
# Launchers and terminals send these to a rank's whole process group.
TO_THE_GROUP = {
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCONT, signal.SIGTSTP),
}


def fork_rank(connection: socket.socket, listener: int, alive: int, received: list[int]) -> bool:
    """Start a guard and a rank. True in the rank, False in the warm process.

    The guard keeps `alive` open. It closes `received`, the rank's descriptors: whoever reads a pipe
    of the rank waits for all that hold it.
    """
    if os.fork():
        return False
    try:
        os.close(listener)
        is_rank = _guard(connection, alive, received)
    except BaseException:  # noqa: BLE001 - it must not become a second warm process
        os._exit(1)
    return is_rank


def _guard(connection: socket.socket, alive: int, received: list[int]) -> bool:
    """True in the rank; the guard ends here."""
    if connection.recv(len(GO)) != GO:
        # The client was killed before it could pass on signals.
        os._exit(1)
    os.setsid()
    # common/fence.py finds guards by this name, and waits until they have ended their ranks.
    name = COMM.read_bytes()
    COMM.write_text(GUARD)
    set_process_option(PR_SET_CHILD_SUBREAPER, 1)
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writer)
    # Without a handler, the signal would not be written to the wake-up descriptor.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    guard = os.getpid()
    rank = os.fork()
    if rank == 0:
        signal.set_wakeup_fd(-1)
        die_with_parent(guard)
        COMM.write_bytes(name)
        for descriptor in (alive, connection.fileno(), reader, writer):
            os.close(descriptor)
        connection.detach()
        return True
    for descriptor in received:
        os.close(descriptor)
    # This process is in the group of the rank, as the parent of a rank that starts cold.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)
    # A client that was killed in this moment is noticed below.
    with contextlib.suppress(OSError):
        warm_client.send(connection, {"pid": rank})
    _watch(connection, reader, rank)


def _watch(connection: socket.socket, reader: int, rank: int) -> NoReturn:
    """Pass on signals until the rank ends, and report how it ended; kill it with its client."""
    poll = select.poll()
    # Registered first, so that it is handled first: the rank's number is not reused before reap.
    poll.register(connection, select.POLLIN)
    poll.register(reader, select.POLLIN)
    status = None
    while status is None:
        for descriptor, _ in poll.poll():
            if descriptor == reader:
                os.read(reader, 4096)
                status = dict(ended_children()).get(rank)
            elif not _pass_on(connection, rank):
                kill_descendants()
                os._exit(0)
    code = os.waitstatus_to_exitcode(status)
    if code:
        # The run has failed: none of its processes may go on beside the next attempt.
        kill_descendants()
    # A client that was killed in this moment needs no answer.
    with contextlib.suppress(OSError):
        warm_client.send(connection, {"status": code})
    os._exit(0)


def _pass_on(connection: socket.socket, rank: int) -> bool:
    """Send the rank the signals that its client got. False when the client is gone."""
    try:
        numbers = connection.recv(4096)
    except OSError:
        return False
    for number in numbers:
        if number in TO_THE_GROUP and os.getpgid(rank) == os.getpid():
            os.killpg(os.getpid(), number)
        else:
            os.kill(rank, number)
    return bool(numbers)


def kill_descendants() -> None:
    """Kill all that this process has started, in whichever session and group, and wait for it."""
    while True:
        for pid in [pid for pid, _, parent, _ in processes() if parent == os.getpid()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            # Orphans become children of this process, so that none is left when it has none.
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
