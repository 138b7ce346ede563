"""What a worker's agent allows its clients."""

from __future__ import annotations

from typing import NamedTuple


class AgentLimits(NamedTuple):
    """Numbers of connections, and seconds. Tests have smaller ones."""

    # Connections of one address without a request, and of all addresses. When there are too many,
    # the oldest makes room.
    per_address: int = 17
    strangers: int = 69
    # Agent connections at a time.
    agent_connections: int = 1024
    # Seconds that a client may stay connected without sending anything: master/probing.py keeps
    # such connections, to see that this worker is there, and renews them before. And seconds from
    # a client's first byte to its request.
    silent_within: float = 120.0
    ask_within: float = 5.0
    # Seconds from the end of a connection to the end of its program, which may end its ranks first.
    end_within: float = 2.0
    # Seconds in which the master ends the connection after it has got a program's exit code.
    close_within: float = 30.0
    # Lines of the log about clients that are no masters, in these seconds.
    lines: int = 20
    lines_every: float = 60.0


# Connections of one address without a request, beside one for each rank, and how many such
# addresses there may be, beside one connection of each worker.
BASE_CONNECTIONS = 16
SOURCES = 4
# Open files of an agent connection, and of the agent itself.
CONNECTION_FILES = 5
OWN_FILES = 32
# The kernel's word for no limit (RLIM_INFINITY), and what is as good.
MANY_FILES = 1 << 20


def choose_limits(slots: int, workers: int, files: int) -> AgentLimits:
    """Return the limits of a worker with these ranks, in a run of so many workers.

    `files` is the number of files that a process may have open; -1 stands for no limit. Clients
    without a request have at most half of them, so that they keep no agent connection out.
    """
    half = (files if files >= 0 else MANY_FILES) // 2
    per_address = BASE_CONNECTIONS + slots
    most = (half - OWN_FILES) // CONNECTION_FILES
    return AgentLimits(
        per_address=per_address,
        strangers=min(SOURCES * per_address + workers, half),
        agent_connections=min(AgentLimits().agent_connections, most),
    )
