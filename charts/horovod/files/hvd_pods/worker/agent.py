"""A worker's agent: starts the programs that the release's master requests.

The agent is a process of its own with one thread. The container ends with it. It sends each client
a line with the worker's revision (protocol/banner.py). It handles no data of a client before both
ends have shown their certificates in a TLS 1.3 handshake. Then the master requests one program
(protocol/start_request.py). The program's standard input, output and errors, its exit code and
signals travel as frames (protocol/frames.py). When the connection ends, the agent ends the program
and all processes that the program started, unless the master lets the program go on for a limited
time.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import ssl
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Mapping

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.pod import processes
from hvd_pods.pod.reporting import log, report_failure
from hvd_pods.protocol import frames, keys
from hvd_pods.protocol.banner import format_banner

# Also imported here for its programs, which forks of this process run (worker/supervisor.py).
from hvd_pods.rank import worker_ranks as _worker_ranks  # noqa: F401
from hvd_pods.shared import contract, paths
from hvd_pods.shared.errors import ConfigurationError, RunError
from hvd_pods.worker import io_loop
from hvd_pods.worker.agent_client import Client, RefusedClientError
from hvd_pods.worker.agent_connections import AgentConnections
from hvd_pods.worker.client_log import ClientLog
from hvd_pods.worker.fence import ChangedProgramsError, Fence
from hvd_pods.worker.limits import AgentLimits, choose_limits
from hvd_pods.worker.pending_clients import PendingClients, listen


class Agent:
    """The clients of a worker, until the agent is asked to end."""

    def __init__(
        self,
        listener: socket.socket,
        own_keys: keys.Keys,
        revision: str,
        fence: Fence,
        environment: Mapping[str, str],
        limits: AgentLimits,
    ) -> None:
        self._keys = own_keys
        self._loop = io_loop.Loop()
        self._log = ClientLog(limits.lines, limits.lines_interval_seconds)
        self._pending_clients = PendingClients(
            self._loop,
            listener,
            format_banner(revision),
            limits,
            self._log,
            self._handle_ready,
        )
        self._agent_connections = AgentConnections(self._loop, fence, environment, limits)
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._leave)
        self._loop.watch(reader, io_loop.READ, lambda: _read_away(reader))
        self._is_leaving = False

    def _leave(self, number: int, frame: FrameType | None) -> None:
        self._is_leaving = True

    def serve(self) -> None:
        """Serve until this process is asked to end and no agent connection is left."""
        while True:
            if self._is_leaving:
                # No other attempt may begin here. Running programs go on.
                self._pending_clients.close()
                if not self._agent_connections:
                    return
            next_due = min(self._pending_clients.next_due, self._agent_connections.next_due)
            self._loop.wait(max(0.0, next_due - time.monotonic()))
            for _ in processes.ended_children():
                continue
            now = time.monotonic()
            self._pending_clients.handle_due(now)
            self._agent_connections.handle_due(now)

    def _handle_ready(self, client: Client) -> None:
        """Read the data that a client has sent, and send pending data to it."""
        try:
            for kind, content in client.receive(self._keys):
                if client.request is None:
                    self._handle_request(client, kind, content)
                else:
                    client.take_frame(kind, content)
        except RefusedClientError as problem:
            self._remove(client)
            client.refuse(str(problem))
        except ConfigurationError as problem:
            self._log.write(f"{client.address}: {problem}")
            self._remove(client)
            client.close()
        except BlockingIOError:
            return
        except OSError as problem:
            if isinstance(problem, (ssl.SSLError, frames.ProtocolError)):
                self._log.write(f"{client.address} is refused: {keys.explain_client(problem)}")
            self._pending_clients.remove(client)
            self._agent_connections.handle_disconnect(client)
        else:
            client.update()

    def _handle_request(self, client: Client, kind: bytes, content: bytes) -> None:
        request = client.read_request(kind, content)
        is_new = self._agent_connections.check_request(request)
        self._pending_clients.remove(client)
        self._agent_connections.add(client, request, is_new=is_new)

    def _remove(self, client: Client) -> None:
        self._pending_clients.remove(client)
        self._agent_connections.remove(client)


def _read_away(descriptor: int) -> None:
    os.read(descriptor, 4096)


def main() -> int:
    """Serve until the worker's main program asks this process to end."""
    environment = os.environ
    parent = os.getppid()
    with suppress(ImportError, OSError):
        processes.set_process_option(processes.PR_SET_CHILD_SUBREAPER, 1)
        processes.die_with_parent(parent)
    port = int(environment[contract.AGENT_PORT])
    slots = int(environment.get(contract.SLOTS, "1"))
    workers = int(environment.get(contract.WORKERS, "1"))
    try:
        own_keys = keys.Keys(paths.KEYS, environment[contract.MASTER_NAME])
        own_keys.server()
        listener = listen(port)
    except RunError as problem:
        return report_failure(problem)
    agent = Agent(
        listener,
        own_keys,
        environment[contract.REVISION],
        Fence(parent, environment.get(contract.METRICS_DIR, "")),
        environment,
        choose_limits(slots, workers, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    )
    log(f"ready for ranks: agent on port {port}")
    try:
        agent.serve()
    except ChangedProgramsError as problem:
        return report_failure(problem)
    return 0


if __name__ == "__main__":
    sys.exit(main())
