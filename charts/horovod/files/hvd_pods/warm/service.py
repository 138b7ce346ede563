"""What the warm process does: import, wait for ranks to fork, and be started again if killed."""

from __future__ import annotations

import faulthandler
import functools
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from hvd_pods.common.fast_start import die_with_parent
from hvd_pods.rank import exception_notice, ranks, warm_client
from hvd_pods.warm import fork, script
from hvd_pods.warm.state import WarmState

# How often the importing process is started: only a lack of memory ever kills it.
STARTS = 3
# A client sends its request at once.
REQUEST_SECONDS = 10.0
Rank = Tuple[Dict[str, Any], List[int]]


def say(message: str) -> None:
    """Write a line to the worker's log."""
    print(f"[hvd] {message}", flush=True)


def main(main_namespace: dict[str, Any]) -> None:
    """Return in a rank only when its program has ended."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    modules = sys.argv[2:]
    die_with_parent(os.getppid())
    rank = supervise(listener, modules)
    if rank is not None:
        request, received = rank
        script.take_over(request, received)
        script.set_up_python(request)
        faulthandler.register(ranks.STACK_SIGNAL, ranks.open_stack_file(request["rank"]))
        script.set_title(request["command"])
        variables, number = request["environment"], request["rank"]
        raised = functools.partial(exception_notice.notify, variables, number)
        script.run(request["program"], main_namespace, raised)


def supervise(listener: socket.socket, modules: Sequence[str]) -> Rank | None:
    """Keep a process that imports and forks; its ranks return from here, too."""
    for start in range(1, STARTS + 1):
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
        say(f"the warm process ended (wait status {status}), start {start} of {STARTS}")
        # Importing again beside running ranks could use up the memory that they need: no other rank
        # finds the socket until the guards of all of them have closed the other end.
        hidden = Path(warm_client.SOCKET).rename(f"{warm_client.SOCKET}.hidden")
        os.read(reader, 1)
        os.close(reader)
        hidden.rename(warm_client.SOCKET)
    say("ranks start cold from now on")
    return None


def serve(listener: socket.socket, alive: int, modules: Sequence[str]) -> Rank:
    """Import the modules, then fork a rank for each client; returns in the rank."""
    began = time.monotonic()
    state = WarmState()
    state.load(modules)
    Path(warm_client.READY).touch()
    if state.problem:
        say(f"ranks start cold: {state.problem} (launch.preload)")
    else:
        names = ", ".join(modules)
        say(f"imported {names} in {time.monotonic() - began:.1f} s: ranks are forks of this")
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
    """Answer one client: refuse, or fork. Returns the request in the rank."""
    if warm_client.peer_uid(connection) != os.geteuid():
        say("refused a process of another user")
        return None
    connection.settimeout(REQUEST_SECONDS)
    received: list[int] = []
    try:
        request, received = warm_client.receive(connection)
        reason = state.find_reason(request)
        state.add_variables(request["environment"])
        warm_client.send(connection, {"cold": reason} if reason else {})
        connection.settimeout(None)
        if reason is None and fork.fork_rank(connection, listener, alive, received):
            return request, received
    except (LookupError, OSError, ValueError) as problem:
        say(f"a rank's request failed: {problem}")
    for descriptor in received:
        os.close(descriptor)
    return None
