"""The tasks of the warm process: import, wait for ranks to fork, and restart after a kill.

A fork is two processes: a guard, and the rank that it starts, watches and ends. A guard is needed
because only a parent learns how a process ended, and because the launcher knows only the client:
when the client is killed, the guard kills the rank and all processes that the rank started.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, NoReturn, Sequence, Tuple

from hvd_pods.pod.processes import (
    PR_SET_CHILD_SUBREAPER,
    die_with_parent,
    end_descendants,
    ended_children,
    set_process_option,
)
from hvd_pods.pod.reporting import log
from hvd_pods.rank import exception_notice, rank_registry, step_count, warm_client
from hvd_pods.warm import rank_fork
from hvd_pods.warm.warm_state import WarmState

# How often the importing process is started: only a lack of memory kills it.
WARM_STARTS = 3
# A client sends its request at once.
FORK_REQUEST_TIMEOUT_SECONDS = 10.0
COMM = Path("/proc/self/comm")
# Launchers and terminals send these to a rank's whole process group.
TO_THE_GROUP = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGCONT,
    signal.SIGTSTP,
}
Rank = Tuple[Dict[str, Any], List[int]]


def main(main_namespace: dict[str, Any]) -> None:
    """Run the warm process; in a rank, run its program, in the namespace of `__main__`.

    Return in the first process when ranks start cold from now on. In a rank, return only when its
    program has ended.
    """
    listener = socket.socket(fileno=int(sys.argv[1]))
    modules = sys.argv[2:]
    die_with_parent(os.getppid())
    rank = supervise(listener, modules)
    if rank is not None:
        request, received = rank
        rank_fork.take_over(request, received)
        rank_fork.set_up_python(request)
        stacks = rank_registry.open_stack_file(request["rank"])
        faulthandler.register(rank_registry.STACK_SIGNAL, stacks)
        step_count.begin(request["rank"])
        variables = request["environment"]
        number = request["rank"]
        raised = functools.partial(exception_notice.notify, variables, number)
        rank_fork.run(request["program"], main_namespace, raised)


def supervise(listener: socket.socket, modules: Sequence[str]) -> Rank | None:
    """Keep a process that imports and forks; restart it when it ends, WARM_STARTS times in all.

    Return the request and the open files in each of its ranks. Return None in this process when it
    gives up.
    """
    for start in range(1, WARM_STARTS + 1):
        Path(warm_client.READY).unlink(missing_ok=True)
        reader, writer = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            die_with_parent(parent)
            return serve(listener, writer, modules)
        os.close(writer)
        status = os.waitpid(pid, 0)[1]
        log(f"the warm process ended (wait status {status}), start {start} of {WARM_STARTS}")
        # Importing again beside running ranks could use up the memory that they need: no other rank
        # finds the socket until the guards of all of them have closed the other end.
        hidden = Path(warm_client.WARM_SOCKET).rename(f"{warm_client.WARM_SOCKET}.hidden")
        os.read(reader, 1)
        os.close(reader)
        hidden.rename(warm_client.WARM_SOCKET)
    log("ranks start cold from now on")
    return None


def serve(listener: socket.socket, alive: int, modules: Sequence[str]) -> Rank:
    """Import the modules, then fork a rank for each client. Return the request in the rank.

    `alive` is a descriptor that stays open as long as this process or a guard runs.
    """
    began = time.monotonic()
    state = WarmState()
    state.load(modules)
    Path(warm_client.READY).touch()
    if state.problem:
        log(f"ranks start cold: {state.problem} (`launch.preload`)")
    else:
        names = ", ".join(modules)
        log(f"imported {names} in {time.monotonic() - began:.1f} s: ranks are forks of this")
    # The kernel reaps the guards.
    handler = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        with connection:
            rank = answer(connection, state, listener.fileno(), alive)
        if rank is not None:
            listener.detach()
            signal.signal(signal.SIGCHLD, handler)
            return rank


def answer(connection: socket.socket, state: WarmState, listener: int, alive: int) -> Rank | None:
    """Handle one client: refuse it, or fork. Return the request in the rank, and None here.

    Log a problem with the request: the client then starts its rank cold.
    """
    if warm_client.peer_uid(connection) != os.geteuid():
        log("refused a process of another user")
        return None
    connection.settimeout(FORK_REQUEST_TIMEOUT_SECONDS)
    received: list[int] = []
    try:
        request, received = warm_client.receive(connection)
        reason = state.find_reason(request)
        state.add_variables(request["environment"])
        warm_client.send(connection, {"cold": reason} if reason else {})
        connection.settimeout(None)
        if reason is None and fork_rank(connection, listener, alive, received):
            return request, received
    except (LookupError, OSError, ValueError) as problem:
        log(f"a rank's request failed: {problem}")
    for descriptor in received:
        os.close(descriptor)
    return None


def fork_rank(connection: socket.socket, listener: int, alive: int, received: list[int]) -> bool:
    """Start a guard and a rank. Return True in the rank, False in the warm process.

    The guard keeps `alive` open. It closes `received`, the rank's descriptors: a reader of the
    rank's pipe waits for all processes that hold the pipe.
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
    """Become the guard, and start the rank. Return True in the rank; the guard ends here."""
    if connection.recv(len(warm_client.GO)) != warm_client.GO:
        # The client was killed before it could pass on signals.
        os._exit(1)
    os.setsid()
    # worker/fence.py finds guards by this name, and waits until they have ended their ranks. Strip
    # the newline that COMM ends with: it would become a part of the name.
    name = COMM.read_bytes().strip()
    COMM.write_text(warm_client.GUARD)
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
    # This process is in the group of the rank, like the parent of a rank that starts cold.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)
    # If the client was killed in this moment, it is noticed below.
    with contextlib.suppress(OSError):
        warm_client.send(connection, {"pid": rank})
    _watch(connection, reader, rank)


def _watch(connection: socket.socket, reader: int, rank: int) -> NoReturn:
    """Pass on signals until the rank ends, and report how it ended; kill it if its client dies."""
    poll = select.poll()
    # Registered first, and so handled first: the rank's number is not reused before it is reaped.
    poll.register(connection, select.POLLIN)
    poll.register(reader, select.POLLIN)
    status = None
    while status is None:
        for descriptor, _ in poll.poll():
            if descriptor == reader:
                os.read(reader, 4096)
                status = dict(ended_children()).get(rank)
            elif not _pass_on(connection, rank):
                end_descendants()
                os._exit(0)
    code = os.waitstatus_to_exitcode(status)
    # The rank's processes must not run beside the next attempt, or keep a launcher waiting.
    end_descendants()
    # A client that was killed in this moment needs no response.
    with contextlib.suppress(OSError):
        warm_client.send(connection, {"status": code})
    os._exit(0)


def _pass_on(connection: socket.socket, rank: int) -> bool:
    """Send the rank the signals that its client received. Return False when the client is gone.

    A signal that launchers and terminals send to groups goes to the rank's group, as long as the
    rank is in the group of this guard.
    """
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
