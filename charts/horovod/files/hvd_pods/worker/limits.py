"""The limits that a worker's agent applies to its clients."""

from __future__ import annotations

from typing import NamedTuple


class AgentLimits(NamedTuple):
    """Numbers of connections, and seconds. Tests use smaller ones."""

    # Pending clients, which have sent no request: of one address, and of all addresses. A
    # connection above the limit replaces the oldest one.
    per_address: int = 17
    pending_clients: int = 69
    # The maximum number of agent connections.
    agent_connections: int = 1024
    # Seconds that a client may stay connected without sending data: master/prober.py keeps such
    # connections to detect the loss of this worker, and renews them earlier. The second number is
    # the timeout from a client's first byte to its request.
    silence_timeout_seconds: float = 120.0
    request_timeout_seconds: float = 5.0
    # Seconds from the end of a connection to the end of its program, which may end its ranks first.
    end_timeout_seconds: float = 2.0
    # Seconds for the master to close the connection after it receives a program's exit code.
    close_timeout_seconds: float = 30.0
    # The most lines to log about clients that are not masters, in this number of seconds.
    lines: int = 20
    lines_interval_seconds: float = 60.0


# The connections of one address without a request, in addition to one for each rank. And the number
# of such addresses, in addition to one connection of each worker.
BASE_CLIENT_CONNECTIONS = 16
SOURCE_ADDRESSES = 4
# The open files of an agent connection, and of the agent itself.
CONNECTION_FILES = 5
OWN_FILES = 32
# The kernel's value for no limit (RLIM_INFINITY), and a number that is large enough.
MANY_FILES = 1 << 20


def choose_limits(slots: int, workers: int, files: int) -> AgentLimits:
    """Return the limits of a worker with this number of ranks, in a run of `workers` workers.

    `files` is the limit on open files of a process; -1 stands for no limit. Clients without a
    request get at most half of the files, so that they cannot block agent connections.
    """
    half = (files if files >= 0 else MANY_FILES) // 2
    per_address = BASE_CLIENT_CONNECTIONS + slots
    most = (half - OWN_FILES) // CONNECTION_FILES
    return AgentLimits(
        per_address=per_address,
        pending_clients=min(SOURCE_ADDRESSES * per_address + workers, half),
        agent_connections=min(AgentLimits().agent_connections, most),
    )
