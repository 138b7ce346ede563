"""The clients of a worker's agent that have requested a program, and these programs."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Mapping

from hvd_pods.pod import processes
from hvd_pods.pod.reporting import log
from hvd_pods.protocol import frames
from hvd_pods.protocol.start_request import StartRequest
from hvd_pods.worker import io_loop
from hvd_pods.worker.agent_client import NEVER, Client, RefusedClientError
from hvd_pods.worker.fence import Fence, FenceError
from hvd_pods.worker.limits import AgentLimits
from hvd_pods.worker.program import Program, ProgramListener

# Seconds between two checks for processes of earlier attempts.
FENCE_CHECK_INTERVAL_SECONDS = 0.01
# Scans for processes without a supervisor: one scan misses a process whose parent ends meanwhile.
ORPHAN_SCANS = 3


class AgentConnections:
    """Starts the requested programs, and ends each one with its connection.

    A program starts when no process of an earlier attempt is left.
    """

    def __init__(
        self,
        loop: io_loop.Loop,
        fence: Fence,
        environment: Mapping[str, str],
        limits: AgentLimits,
    ) -> None:
        self._loop = loop
        self._fence = fence
        self._environment = dict(environment)
        self._limits = limits
        self._clients: list[Client] = []
        # Those that wait until the processes of earlier attempts have ended.
        self._waiting_for_fence: dict[Client, StartRequest] = {}

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def next_due(self) -> float:
        """The time of the next call of `handle_due`."""
        check_at = NEVER
        if self._fence.is_closed:
            check_at = time.monotonic() + FENCE_CHECK_INTERVAL_SECONDS
        return min([check_at, *(client.end_at for client in self._clients)])

    def handle_due(self, now: float) -> None:
        """End the programs whose time is over, and start those for which the fence opens."""
        for client in [client for client in self._clients if client.end_at <= now]:
            # The deadline repeats: training code may have stopped the supervisor.
            client.end_at = now + self._limits.end_timeout_seconds
            if client.program and client.program.exit_code is None:
                client.program.kill()
            else:
                self._drop(client)
        if self._fence.is_closed:
            self._check_fence()

    def check_request(self, request: StartRequest) -> bool:
        """Return whether a request has a new fence number.

        Raises RefusedClientError for one more connection than allowed, and for a lower number.
        """
        if len(self._clients) >= self._limits.agent_connections:
            raise RefusedClientError(
                f"refused: this worker has {len(self._clients)} agent connections"
            )
        try:
            return self._fence.admit(request.fence)
        except FenceError as problem:
            raise RefusedClientError(str(problem)) from problem

    def add(self, client: Client, request: StartRequest, *, is_new: bool) -> None:
        """Start the program of a request when no process of an earlier attempt is left.

        `is_new` is whether its fence number is new.
        """
        self._clients.append(client)
        if is_new:
            # The waiting clients belong to the previous attempt.
            for earlier_client in self._take_waiting_for_fence():
                self._refuse(earlier_client, "refused: a newer master or attempt uses this worker")
        if self._fence.is_closed:
            self._waiting_for_fence[client] = request
            self._check_fence()
        else:
            self._start(client, request)

    def remove(self, client: Client) -> None:
        """Forget a client, which is refused or may be unknown."""
        with suppress(ValueError):
            self._clients.remove(client)
        self._waiting_for_fence.pop(client, None)

    def handle_disconnect(self, client: Client) -> None:
        """Handle the end of a connection: end its program, or let it end itself."""
        if not client.program or client.program.has_ended:
            self._drop(client)
            return
        client.disconnect()
        client.program.give(b"")
        client.program.read_output(True)
        # A program that stays ends itself. The agent ends it if it does not.
        stay = client.request.stay if client.request and client.may_continue else 0.0
        client.end_at = time.monotonic() + stay + self._limits.end_timeout_seconds

    def _check_fence(self) -> None:
        try:
            if not self._fence.end_older():
                return
        except FenceError as problem:
            for client in self._take_waiting_for_fence():
                self._refuse(client, str(problem))
            return
        for client, request in self._take_waiting_for_fence().items():
            self._start(client, request)

    def _take_waiting_for_fence(self) -> dict[Client, StartRequest]:
        waiting = self._waiting_for_fence
        self._waiting_for_fence = {}
        return waiting

    def _start(self, client: Client, request: StartRequest) -> None:
        try:
            program = Program(
                self._loop,
                request.argv,
                request.environment(self._environment, self._fence.number),
                ProgramListener(
                    lambda kind, data: self._send(client, kind, data),
                    client.acknowledge,
                    lambda program: self._finish(client, request, program),
                ),
            )
        except OSError as problem:
            self._refuse(client, f"cannot start a process: {problem}")
            return
        client.use_program(program)

    def _send(self, client: Client, kind: bytes, content: bytes) -> None:
        try:
            client.send(kind, content)
        except OSError:
            self.handle_disconnect(client)
        else:
            client.update()

    def _finish(self, client: Client, request: StartRequest, program: Program) -> None:
        """End an agent connection when its program has ended and all its output is sent."""
        if program.is_orphaned:
            self._end_orphans(client)
        if not program.has_ended:
            return
        code = program.exit_code or 0
        text = f"fence number {request.fence}, argv {request.digest()}, ended: {code}"
        log(f"agent connection from {client.address}: {text}")
        if not client.is_connected:
            self._drop(client)
            return
        # The master closes the connection: if this end closed it, data in transit would be lost.
        client.end_at = time.monotonic() + self._limits.close_timeout_seconds
        self._send(client, frames.EXIT, frames.NUMBER.pack(code))

    def _end_orphans(self, client: Client) -> None:
        """Kill the processes below this one that belong to no other agent connection."""
        others = [
            connection.program.pid
            for connection in self._clients
            if connection is not client and connection.program
        ]
        for _ in range(ORPHAN_SCANS):
            # This order matters: `descendants` lacks programs that other agent connections start
            # meanwhile.
            descendants = set(processes.descendants(os.getpid()))
            below = {pid for other in others for pid in [other, *processes.descendants(other)]}
            for pid in descendants - below:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _refuse(self, client: Client, reason: str) -> None:
        self.remove(client)
        client.refuse(reason)

    def _drop(self, client: Client) -> None:
        """Remove a client that has no program, or whose program has ended."""
        self.remove(client)
        client.close()
