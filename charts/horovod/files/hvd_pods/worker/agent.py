"""A worker's agent: starts the programs that the release's master requests.

The agent is a process of its own with one thread. The container ends with it. It sends each client
a line with the worker's revision (agent/banner.py). It handles no data of a client before both ends
have shown their certificates in a TLS 1.3 handshake. Then the master requests one program
(agent/start_request.py). The program's standard input, output and errors, its exit code and signals
travel as frames (agent/frames.py). When the connection ends, the agent ends the program and all
processes that the program started, unless the master lets the program go on for a limited time.
"""

from __future__ import annotations

import errno
import os
import resource
import secrets
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
from hvd_pods.agent import frames, keys, start_request
from hvd_pods.agent.banner import format_banner
from hvd_pods.pod import processes, ranks_program
from hvd_pods.pod.reporting import log, report_failure

# Also imported here for its programs, which forks of this process run (worker/supervisor.py).
from hvd_pods.rank import worker_ranks as _worker_ranks  # noqa: F401
from hvd_pods.shared import contract, paths
from hvd_pods.shared.errors import ConfigurationError, RunError
from hvd_pods.worker import io_loop
from hvd_pods.worker.fence import ChangedProgramsError, Fence, FenceError
from hvd_pods.worker.limits import AgentLimits, choose_limits
from hvd_pods.worker.program import Listener, Program

# The program waits while the master has not taken this many bytes of output. The master has the
# same limit for input that the program has not taken, except that it sends short input, such as the
# user's code, at once. The second limit ends the connection.
MAX_OUTPUT_BYTES = 1 << 18
MAX_INPUT_BYTES = 1 << 26
# Seconds between two checks for processes of earlier attempts, and the delay before the agent
# accepts connections again after it had too many open files.
FENCE_CHECK_INTERVAL_SECONDS = 0.01
ACCEPT_RETRY_DELAY_SECONDS = 0.1
BACKLOG = 1024
# Scans for processes without a supervisor: one scan misses a process whose parent ends meanwhile.
ORPHAN_SCANS = 3
NEVER = float("inf")


class RefusedClientError(Exception):
    """A client is refused, for the reason in the message."""


class Client:
    """A connection, and the program that it requested."""

    def __init__(self, connection: socket.socket, address: str, until: float) -> None:
        self.connection = connection
        self.address = address
        # The connection times out at this moment unless its request has arrived.
        self.until = until
        # None before the first byte arrives, and after the connection ends.
        self.channel: frames.Channel | None = None
        self.nonce = ""
        self.request: start_request.StartRequest | None = None
        self.program: Program | None = None
        # Frames for the program that arrived before the program started, and their bytes.
        self.early_frames: list[tuple[bytes, bytes]] = []
        self.early_bytes = 0
        # The deadline to end the program, or to close a connection that the master should close.
        self.end_at = NEVER
        self.may_continue = False

    @property
    def unread(self) -> int:
        """Return the bytes of input that wait for the program."""
        return self.program.unread if self.program else self.early_bytes


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
        self._listener = listener
        self._accept_at = NEVER
        self._keys = own_keys
        self._banner = format_banner(revision)
        self._fence = fence
        self._environment = dict(environment)
        self._limits = limits
        self._loop = io_loop.Loop()
        self._loop.watch(listener.fileno(), io_loop.READ, self._accept)
        # In the order of their arrival: clients that have not sent a request yet, and clients that
        # have.
        self._pending_clients: list[Client] = []
        self._agent_connections: list[Client] = []
        # Agent connections that wait until the processes of earlier attempts have ended.
        self._waiting_for_fence: dict[Client, start_request.StartRequest] = {}
        self._log_times: list[float] = []
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
                self._stop_accepting()
                if not self._agent_connections:
                    return
            self._loop.wait(max(0.0, self._next_due() - time.monotonic()))
            for _ in processes.ended_children():
                continue
            self._handle_due()

    def _stop_accepting(self) -> None:
        self._loop.unwatch(self._listener.fileno())
        self._listener.close()
        self._accept_at = NEVER
        for client in list(self._pending_clients):
            self._drop(client)

    # Time.

    def _next_due(self) -> float:
        times = [self._accept_at, *(client.until for client in self._pending_clients)]
        times += [client.end_at for client in self._agent_connections]
        if self._fence.is_closed:
            times.append(time.monotonic() + FENCE_CHECK_INTERVAL_SECONDS)
        return min(times)

    def _handle_due(self) -> None:
        now = time.monotonic()
        for client in [client for client in self._pending_clients if client.until <= now]:
            if client.channel:
                timeout_seconds = self._limits.request_timeout_seconds
                self._log(f"{client.address} has sent no request within {timeout_seconds:g} s")
            self._drop(client)
        for client in [client for client in self._agent_connections if client.end_at <= now]:
            # The deadline repeats: training code may have stopped the supervisor.
            client.end_at = now + self._limits.end_timeout_seconds
            if client.program and client.program.exit_code is None:
                client.program.kill()
            else:
                self._drop(client)
        if self._fence.is_closed:
            self._check_fence()
        if self._accept_at <= now:
            self._accept_at = NEVER
            self._loop.watch(self._listener.fileno(), io_loop.READ, self._accept)

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

    def _take_waiting_for_fence(self) -> dict[Client, start_request.StartRequest]:
        waiting = self._waiting_for_fence
        self._waiting_for_fence = {}
        return waiting

    # Pending clients, which have sent no request.

    def _accept(self) -> None:
        try:
            connection, peer = self._listener.accept()
        except OSError as problem:
            self._log(f"cannot take a connection: {problem}")
            if problem.errno in (errno.EMFILE, errno.ENFILE):
                # The connection stays in the queue: without a delay, the loop would retry at once,
                # forever.
                self._loop.unwatch(self._listener.fileno())
                self._accept_at = time.monotonic() + ACCEPT_RETRY_DELAY_SECONDS
            return
        address = str(peer[0])
        same = [client for client in self._pending_clients if client.address == address]
        if len(same) >= self._limits.per_address:
            self._drop(same[0])
        elif len(self._pending_clients) >= self._limits.pending_clients:
            self._drop(self._pending_clients[0])
        client = Client(
            connection, address, time.monotonic() + self._limits.silence_timeout_seconds
        )
        self._pending_clients.append(client)
        connection.setblocking(False)
        with suppress(OSError):
            frames.keep_alive(connection)
        try:
            connection.send(self._banner)
        except OSError:
            self._drop(client)
            return
        self._loop.watch(connection.fileno(), io_loop.READ, lambda: self._ready(client))

    def _ready(self, client: Client) -> None:
        """Read the data that a client has sent, and send pending data to it."""
        try:
            channel = client.channel
            if channel is None:
                if not client.connection.recv(1, socket.MSG_PEEK):
                    raise ConnectionResetError("the connection has ended")
                channel = frames.Channel(client.connection, self._keys.server())
                client.channel = channel
                client.until = time.monotonic() + self._limits.request_timeout_seconds
            for kind, content in channel.receive():
                self._authenticate(client, channel)
                self._handle_frame(client, kind, content)
            if client.channel and channel.is_open:
                self._authenticate(client, channel)
        except RefusedClientError as problem:
            self._refuse(client, str(problem))
        except ConfigurationError as problem:
            self._log(f"{client.address}: {problem}")
            self._drop(client)
        except BlockingIOError:
            return
        except OSError as problem:
            if isinstance(problem, (ssl.SSLError, frames.ProtocolError)):
                self._log(f"{client.address} is refused: {keys.explain_client(problem)}")
            self._handle_disconnect(client)
        else:
            self._update(client)

    def _authenticate(self, client: Client, channel: frames.Channel) -> None:
        """Answer the handshake once, with a nonce that the connection's request must contain."""
        if client.nonce:
            return
        certificate = channel.certificate()
        if not keys.has_name(certificate, self._keys.peer_name):
            raise RefusedClientError(f"its certificate is not that of {self._keys.peer_name}")
        problem = keys.find_time_problem(certificate, time.time())
        if problem:
            raise RefusedClientError(keys.REFUSES_MASTER + problem)
        client.nonce = secrets.token_hex(16)
        channel.send(frames.HELLO, client.nonce.encode())

    def _handle_frame(self, client: Client, kind: bytes, content: bytes) -> None:
        """Handle a frame from the master, after `_authenticate`."""
        if client.request is None:
            if kind != frames.REQUEST:
                raise RefusedClientError("its first frame is no request")
            self._handle_request(client, content)
            return
        is_number = kind == frames.SIGNAL and len(content) == frames.NUMBER.size
        if not is_number and kind not in (frames.INPUT, frames.STAY):
            raise frames.ProtocolError(f"unexpected frame {kind!r}")
        if client.unread + len(content) > MAX_INPUT_BYTES:
            raise frames.ProtocolError(f"more than {MAX_INPUT_BYTES} bytes of input wait")
        if client.program:
            self._pass_to(client, client.program, kind, content)
        else:
            client.early_frames.append((kind, content))
            client.early_bytes += len(content)

    # Agent connections.

    def _handle_request(self, client: Client, content: bytes) -> None:
        """Handle a request; start its program when no process of an earlier attempt is left."""
        try:
            request = start_request.parse(content, client.nonce)
        except start_request.RequestError as problem:
            raise RefusedClientError(str(problem)) from problem
        client.request = request
        if len(self._agent_connections) >= self._limits.agent_connections:
            raise RefusedClientError(
                f"refused: this worker has {len(self._agent_connections)} agent connections"
            )
        try:
            is_new = self._fence.admit(request.fence)
        except FenceError as problem:
            raise RefusedClientError(str(problem)) from problem
        self._pending_clients.remove(client)
        self._agent_connections.append(client)
        if is_new:
            # The waiting clients belong to the previous attempt.
            for other in self._take_waiting_for_fence():
                self._refuse(other, "refused: a newer master or attempt uses this worker")
        if self._fence.is_closed:
            self._waiting_for_fence[client] = request
            self._check_fence()
        else:
            self._start(client, request)

    def _start(self, client: Client, request: start_request.StartRequest) -> None:
        try:
            program = Program(
                self._loop,
                request.argv,
                request.environment(self._environment, self._fence.number),
                Listener(
                    lambda kind, data: self._send_output(client, kind, data),
                    lambda number: self._send_taken(client, number),
                    lambda program: self._finish(client, request, program),
                ),
            )
        except OSError as problem:
            self._refuse(client, f"cannot start a process: {problem}")
            return
        client.program = program
        for kind, content in client.early_frames:
            self._pass_to(client, program, kind, content)
        client.early_frames = []

    def _pass_to(self, client: Client, program: Program, kind: bytes, content: bytes) -> None:
        if kind == frames.INPUT:
            program.give(content)
        elif kind == frames.STAY:
            client.may_continue = True
            program.give(ranks_program.STAY)
        else:
            program.pass_on(frames.NUMBER.unpack(content)[0])

    def _send_output(self, client: Client, kind: bytes, data: bytes) -> None:
        # The connection has ended: drop the output.
        if client.channel:
            self._send(client, client.channel, kind, data)

    def _send_taken(self, client: Client, number: int) -> None:
        if client.channel:
            with suppress(OSError):
                client.channel.acknowledge(number)
            self._update(client)

    def _send(self, client: Client, channel: frames.Channel, kind: bytes, content: bytes) -> None:
        try:
            channel.send(kind, content)
        except OSError:
            self._handle_disconnect(client)
            return
        self._update(client)

    def _finish(
        self, client: Client, request: start_request.StartRequest, program: Program
    ) -> None:
        """End an agent connection when its program has ended and all its output is sent."""
        if program.is_orphaned:
            self._end_orphans(client)
        if not program.has_ended:
            return
        code = program.exit_code or 0
        text = f"fence number {request.fence}, argv {request.digest()}, ended: {code}"
        log(f"agent connection from {client.address}: {text}")
        if not client.channel:
            self._drop(client)
            return
        # The master closes the connection: if this end closed it, data in transit would be lost.
        client.end_at = time.monotonic() + self._limits.close_timeout_seconds
        self._send(client, client.channel, frames.EXIT, frames.NUMBER.pack(code))

    def _end_orphans(self, client: Client) -> None:
        """Kill the processes below this one that belong to no other agent connection."""
        others = [
            connection.program.pid
            for connection in self._agent_connections
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

    # Ends.

    def _handle_disconnect(self, client: Client) -> None:
        """Handle the end of a connection: end its program."""
        if client not in self._agent_connections or not client.program or client.program.has_ended:
            self._drop(client)
            return
        self._loop.unwatch(client.connection.fileno())
        client.connection.close()
        client.channel = None
        client.program.give(b"")
        client.program.read_output(True)
        # A program that stays ends itself. The agent ends it if it does not.
        stay = client.request.stay if client.request and client.may_continue else 0.0
        client.end_at = time.monotonic() + stay + self._limits.end_timeout_seconds

    def _refuse(self, client: Client, reason: str) -> None:
        """Send a client the reason for its refusal, and close its connection."""
        self._log(f"{client.address}: {reason}")
        if client.channel:
            with suppress(OSError):
                client.channel.send(frames.REFUSED, reason.encode()[: frames.MAX_FRAME_BYTES])
        self._drop(client)

    def _drop(self, client: Client) -> None:
        """Remove a client that has no program, or whose program has ended."""
        for clients in (self._pending_clients, self._agent_connections):
            if client in clients:
                clients.remove(client)
        self._waiting_for_fence.pop(client, None)
        if client.program:
            client.program.close()
        if client.connection.fileno() >= 0:
            self._loop.unwatch(client.connection.fileno())
        client.connection.close()
        client.channel = None

    def _update(self, client: Client) -> None:
        """Watch the events that a connection and its program are ready for."""
        if not client.channel:
            return
        events = client.channel.events
        self._loop.watch(client.connection.fileno(), events, lambda: self._ready(client))
        if client.program:
            client.program.read_output(client.channel.waiting <= MAX_OUTPUT_BYTES)

    def _log(self, message: str) -> None:
        """Log a line about a client, within the limit on lines."""
        now = time.monotonic()
        self._log_times = [
            logged_at
            for logged_at in self._log_times
            if now - logged_at < self._limits.lines_interval_seconds
        ]
        if len(self._log_times) < self._limits.lines:
            self._log_times.append(now)
            log(f"agent: {message}")


def _read_away(descriptor: int) -> None:
    os.read(descriptor, 4096)


def listen(port: int) -> socket.socket:
    """Listen on all IPv6 and IPv4 addresses. Raises ConfigurationError when that fails."""
    try:
        if socket.has_dualstack_ipv6():
            with suppress(OSError):
                return _listen(("::", port), socket.AF_INET6, dualstack=True)
        return _listen(("0.0.0.0", port), socket.AF_INET, dualstack=False)  # noqa: S104
    except OSError as problem:
        raise ConfigurationError(
            f"the agent cannot listen on port {port}: {problem}: with hostNetwork, each release on "
            "a node needs a port of its own: set `agent.port`"
        ) from problem


def _listen(address: tuple[str, int], family: int, *, dualstack: bool) -> socket.socket:
    return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=dualstack)


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
