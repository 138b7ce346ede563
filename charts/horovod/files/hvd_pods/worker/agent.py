"""A worker's agent: starts what the release's master asks for.

It is a process of its own, in one thread, and the container ends with it. Whoever connects gets a
line that names the worker's revision (agent/banner.py). Nothing that a client sends is looked at
before both ends have shown their certificates in a TLS 1.3 handshake. Then the master asks for one
program (agent/requests.py). Its standard input, output and errors, signals and its exit code
travel as frames (agent/frames.py). When the connection ends, so does the program, with all that
it has started, unless the master has left it to itself for a limited time.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import socket
import ssl
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Callable, Mapping

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.agent import frames, keys, requests
from hvd_pods.agent.banner import format_banner
from hvd_pods.common import fast_start
from hvd_pods.common.errors import ConfigurationError, RunError
from hvd_pods.common.reporting import log, report_failure

# Also imported here for its programs, which forks of this process run (worker/supervisor.py).
from hvd_pods.rank import host as _host  # noqa: F401
from hvd_pods.worker import supervisor
from hvd_pods.worker.fence import Fence, FenceError

# Seconds that a client may stay connected without sending anything: master/probing.py keeps such
# connections, to see that this worker is there, and renews them before. And seconds from a
# client's first byte to its request.
SILENT_WITHIN = 120.0
ASK_WITHIN = 5.0
# Connections of one address without a request, beside one for each rank, and how many such
# addresses there may be, beside one connection of each host. When there are too many, the oldest
# makes room.
BASE_CONNECTIONS = 16
SOURCES = 4
# Sessions at a time.
MOST_SESSIONS = 1024
# Bytes that wait to be sent, or to be read by a program, before this end reads no more.
MOST_WAITING = 1 << 18
CHUNK = 1 << 16
# Seconds from the end of a connection to the end of its program, which may end its ranks first.
END_WITHIN = 2.0
# Seconds between two looks at processes of an older epoch.
FENCE_EVERY = 0.01
# Lines of the log about clients that are no masters, in these seconds.
MOST_LINES = 20
LINES_EVERY = 60.0
BACKLOG = 1024


class RefusedError(Exception):
    """A client is not served, for the reason in the message."""


class Client:
    """A connection, and the program that it has asked for."""

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.connection = connection
        self.address = address
        # When the connection is given up unless its request has come.
        self.until = time.monotonic() + SILENT_WITHIN
        self.channel: frames.Channel | None = None
        self.nonce = ""
        self.request: requests.Request | None = None
        # The supervisor of the program that was started; the read ends of its output and of its
        # status, and the write end of its standard input, until they are closed.
        self.pid = 0
        self.outputs: dict[int, bytes] = {}
        self.status: int | None = None
        self.stdin: int | None = None
        self.unread = bytearray()
        self.input_has_ended = False
        self.code: int | None = None
        # When the program is ended although its connection is gone; None while it is not.
        self.end_at: float | None = None
        self.may_stay = False

    @property
    def is_gone(self) -> bool:
        return self.end_at is not None


class Agent:
    """The clients of a worker, until it is asked to end."""

    def __init__(
        self,
        listener: socket.socket,
        own_keys: keys.Keys,
        revision: str,
        fence: Fence,
        environment: Mapping[str, str],
        per_address: int,
        most: int,
    ) -> None:
        self._listener: socket.socket | None = listener
        self._keys = own_keys
        self._banner = format_banner(revision)
        self._fence = fence
        self._environment = dict(environment)
        self._per_address = per_address
        self._most = most
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        # In the order of their arrival: without a request, and with one.
        self._strangers: list[Client] = []
        self._sessions: list[Client] = []
        # Sessions that wait until the processes of an older epoch are gone.
        self._waiting: list[Client] = []
        self._lines: list[float] = []
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._leave)
        self._selector.register(reader, selectors.EVENT_READ, lambda _: os.read(reader, 4096))
        self._is_leaving = False

    def _leave(self, number: int, frame: FrameType | None) -> None:
        self._is_leaving = True

    def serve(self) -> None:
        """Serve until this process was asked to end and no session is left."""
        while True:
            if self._is_leaving and self._listener:
                # No other attempt may begin here; what runs goes on.
                self._selector.unregister(self._listener)
                self._listener.close()
                self._listener = None
                for client in list(self._strangers):
                    self._drop(client)
            if self._is_leaving and not self._sessions:
                return
            due = self._next_due()
            left = None if due == float("inf") else max(0.0, due - time.monotonic())
            for key, mask in self._selector.select(left):
                # A callback before this one may have closed the file.
                if self._selector.get_map().get(key.fd) == key:
                    key.data(mask)
            for _ in fast_start.ended_children():
                continue
            self._handle_due()

    # Time.

    def _next_due(self) -> float:
        times = [client.until for client in self._strangers]
        times += [client.end_at for client in self._sessions if client.end_at is not None]
        if self._fence.is_closed:
            times.append(time.monotonic() + FENCE_EVERY)
        return min(times, default=float("inf"))

    def _handle_due(self) -> None:
        now = time.monotonic()
        for client in [one for one in self._strangers if one.until <= now]:
            if client.channel:
                self._say(f"{client.address} has sent no request within {ASK_WITHIN:.0f} s")
            self._drop(client)
        for client in [one for one in self._sessions if (one.end_at or now + 1) <= now]:
            client.end_at = float("inf")
            self._kill(client)
        if self._fence.is_closed:
            self._look_at_fence()

    def _look_at_fence(self) -> None:
        try:
            if not self._fence.end_older():
                return
        except FenceError as problem:
            for client in self._take_waiting():
                self._refuse(client, str(problem))
            return
        for client in self._take_waiting():
            self._start(client)

    def _take_waiting(self) -> list[Client]:
        waiting = [client for client in self._waiting if client in self._sessions]
        self._waiting = []
        return waiting

    # Connections.

    def _accept(self, _: int) -> None:
        assert self._listener  # noqa: S101
        try:
            connection, peer = self._listener.accept()
        except OSError as problem:
            # The client has gone, or there are too many open files.
            self._say(f"cannot take a connection: {problem}")
            return
        address = str(peer[0])
        client = Client(connection, address)
        same = [one for one in self._strangers if one.address == address]
        if len(same) >= self._per_address:
            self._drop(same[0])
        elif len(self._strangers) >= self._most:
            self._drop(self._strangers[0])
        self._strangers.append(client)
        connection.setblocking(False)
        with suppress(OSError):
            frames.keep_alive(connection)
        try:
            connection.send(self._banner)
        except OSError:
            self._drop(client)
            return
        self._watch(connection.fileno(), selectors.EVENT_READ, lambda mask: self._ready(client))

    def _ready(self, client: Client) -> None:
        """Read what a client has sent, and send what it has not got yet."""
        try:
            if client.channel is None:
                if not client.connection.recv(1, socket.MSG_PEEK):
                    raise ConnectionResetError("the connection has ended")
                client.channel = frames.Channel(client.connection, self._keys.server())
                client.until = time.monotonic() + ASK_WITHIN
            for kind, content in client.channel.receive():
                self._take(client, kind, content)
            if client.channel.is_open and not client.nonce:
                self._greet(client)
        except RefusedError as problem:
            self._refuse(client, str(problem))
            return
        except ConfigurationError as problem:
            self._say(f"{client.address}: {problem}")
            self._drop(client)
            return
        except BlockingIOError:
            return
        except OSError as problem:
            if isinstance(problem, ssl.SSLError):
                self._say(f"{client.address} is refused: {problem.reason or problem}")
            self._lose(client)
            return
        self._update(client)

    def _greet(self, client: Client) -> None:
        """Answer the handshake with a number that this connection's request must have."""
        assert client.channel  # noqa: S101
        if not keys.has_name(client.channel.certificate(), self._keys.peer_name):
            raise RefusedError(f"its certificate is not that of {self._keys.peer_name}")
        client.nonce = secrets.token_hex(16)
        client.channel.send(frames.HELLO, client.nonce.encode())

    def _take(self, client: Client, kind: bytes, content: bytes) -> None:
        """Take a frame of the master's."""
        if not client.nonce:
            self._greet(client)
        if client.request is None:
            if kind != frames.REQUEST:
                raise RefusedError("its first frame is no request")
            self._ask(client, content)
        elif kind == frames.INPUT and not client.input_has_ended:
            client.input_has_ended = not content
            client.unread += content
            self._give(client)
        elif kind == frames.SIGNAL and len(content) == frames.NUMBER.size:
            number = frames.NUMBER.unpack(content)[0]
            if client.pid and number in supervisor.PASSED_ON:
                with suppress(ProcessLookupError):
                    os.kill(client.pid, number)
        elif kind == frames.STAY:
            client.may_stay = True
            client.unread += fast_start.STAY
            self._give(client)
        else:
            raise frames.ProtocolError(f"unexpected frame {kind!r}")

    def _ask(self, client: Client, content: bytes) -> None:
        """Take a request, and start its program when nothing of an older epoch is left."""
        try:
            request = requests.parse(content, client.nonce)
        except requests.RequestError as problem:
            raise RefusedError(str(problem)) from problem
        client.request = request
        if len(self._sessions) >= MOST_SESSIONS:
            raise RefusedError(f"refused: this worker has {MOST_SESSIONS} sessions")
        try:
            is_new = self._fence.admit(request.epoch)
        except FenceError as problem:
            raise RefusedError(str(problem)) from problem
        self._strangers.remove(client)
        self._sessions.append(client)
        if is_new:
            # Those that wait are of the epoch before.
            for other in self._take_waiting():
                self._refuse(other, "refused: a newer master or attempt uses this worker")
        if self._fence.is_closed:
            self._waiting.append(client)
            self._look_at_fence()
        else:
            self._start(client)

    def _start(self, client: Client) -> None:
        request = client.request
        assert request  # noqa: S101
        environment = request.environment(self._environment, self._fence.epoch)
        pipes = [os.pipe() for _ in range(4)]
        (program_in, own_in), *outputs = pipes
        try:
            program_ends = [program_in, *(writer for _, writer in outputs)]
            client.pid = supervisor.start(request.argv, environment, program_ends)
        except OSError as problem:
            for pipe in pipes:
                for end in pipe:
                    os.close(end)
            self._refuse(client, f"cannot start a process: {problem}")
            return
        for end in program_ends:
            os.close(end)
        client.stdin = own_in
        os.set_blocking(own_in, False)
        (out, _), (errors, _), (status, _) = outputs
        client.outputs = {out: frames.OUTPUT, errors: frames.ERRORS}
        client.status = status
        for end in client.outputs:
            self._watch(end, selectors.EVENT_READ, self._reader(client, end))
        self._watch(status, selectors.EVENT_READ, lambda _: self._take_status(client))
        self._give(client)

    # Programs.

    def _reader(self, client: Client, end: int) -> Callable[[int], None]:
        return lambda _: self._pass_on(client, end)

    def _pass_on(self, client: Client, end: int) -> None:
        """Send what a program has written."""
        data = os.read(end, CHUNK)
        if not data:
            self._close_pipe(end)
            del client.outputs[end]
            self._finish(client)
            return
        if client.is_gone or not client.channel:
            return
        try:
            client.channel.send(client.outputs[end], data)
        except OSError:
            self._lose(client)
            return
        self._update(client)

    def _give(self, client: Client) -> None:
        """Let a program read its standard input."""
        if client.stdin is None:
            client.unread.clear()
            return
        try:
            while client.unread:
                del client.unread[: os.write(client.stdin, client.unread[:CHUNK])]
        except BlockingIOError:
            self._watch(client.stdin, selectors.EVENT_WRITE, lambda _: self._give_again(client))
            return
        except OSError:
            client.unread.clear()
            client.input_has_ended = True
        self._unwatch(client.stdin)
        if client.input_has_ended:
            os.close(client.stdin)
            client.stdin = None

    def _give_again(self, client: Client) -> None:
        self._give(client)
        self._update(client)

    def _take_status(self, client: Client) -> None:
        """Learn how a program ended, and that nothing of it is left."""
        assert client.status is not None  # noqa: S101
        text = os.read(client.status, 64)
        self._close_pipe(client.status)
        client.status = None
        if text:
            status = int(text)
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        else:
            # Its supervisor was killed. What the program has left is a child of this process now.
            code = -signal.SIGKILL
            self._end_orphans(client)
        client.code = code
        self._finish(client)

    def _end_orphans(self, client: Client) -> None:
        """Kill the processes below this one that belong to no other session."""
        # In this order: what another session starts meanwhile is not among these.
        found = set(fast_start.descendants(os.getpid()))
        others = [one.pid for one in self._sessions if one is not client and one.pid]
        below = {pid for other in others for pid in [other, *fast_start.descendants(other)]}
        for pid in found - below:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _finish(self, client: Client) -> None:
        """End a session when its program has ended and all of its output has been sent."""
        if client.outputs or client.code is None:
            return
        assert client.request  # noqa: S101
        digest = client.request.digest()
        epoch = client.request.epoch
        log(f"session of {client.address}: epoch {epoch}, argv {digest}, ended: {client.code}")
        if client.is_gone or not client.channel:
            self._forget(client)
            return
        client.end_at = time.monotonic() + END_WITHIN
        try:
            # The master then ends the connection: this end would take what is under way with it.
            client.channel.send(frames.EXIT, frames.NUMBER.pack(client.code))
        except OSError:
            self._forget(client)
            return
        self._update(client)

    def _kill(self, client: Client) -> None:
        """End a program whose connection has ended, with all that it has started."""
        if client.code is not None or not client.pid:
            self._forget(client)
            return
        below = list(fast_start.descendants(client.pid))
        for pid in below:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    # Ends.

    def _lose(self, client: Client) -> None:
        """Take note of the end of a connection."""
        if client not in self._sessions or client in self._waiting or not client.pid:
            self._drop(client)
            return
        if client.code is not None:
            self._forget(client)
            return
        self._unwatch(client.connection.fileno())
        client.connection.close()
        client.channel = None
        client.unread.clear()
        client.input_has_ended = True
        self._give(client)
        # A program that stays ends itself; it is ended here if it does not.
        stay = client.request.stay if client.request and client.may_stay else 0.0
        client.end_at = time.monotonic() + stay + END_WITHIN
        # What is still written has no reader.
        for end in client.outputs:
            self._watch(end, selectors.EVENT_READ, self._reader(client, end))

    def _refuse(self, client: Client, reason: str) -> None:
        """Tell a client why it is not served, and end its connection."""
        self._say(f"{client.address}: {reason}")
        if client.channel:
            with suppress(OSError):
                client.channel.send(frames.REFUSED, reason.encode()[: frames.LONGEST])
        self._drop(client)

    def _drop(self, client: Client) -> None:
        for clients in (self._strangers, self._sessions, self._waiting):
            if client in clients:
                clients.remove(client)
        with suppress(ValueError, OSError):
            self._unwatch(client.connection.fileno())
        client.connection.close()

    def _forget(self, client: Client) -> None:
        """End a session whose program has ended."""
        for end in [*client.outputs, client.status, client.stdin]:
            if end is not None:
                self._close_pipe(end)
        client.outputs = {}
        client.status = client.stdin = None
        self._drop(client)

    def _update(self, client: Client) -> None:
        """Wait for what a connection and its program are ready for."""
        channel = client.channel
        if channel is None or client.connection.fileno() < 0:
            return
        events = selectors.EVENT_WRITE if channel.waiting else 0
        if len(client.unread) < MOST_WAITING:
            events |= selectors.EVENT_READ
        self._watch(client.connection.fileno(), events, self._connection_callback(client))
        for end in client.outputs:
            is_slow = channel.waiting > MOST_WAITING
            reads = 0 if is_slow else selectors.EVENT_READ
            self._watch(end, reads, self._reader(client, end))

    def _connection_callback(self, client: Client) -> Callable[[int], None]:
        return lambda _: self._ready(client)

    def _watch(self, descriptor: int, events: int, callback: Callable[[int], None]) -> None:
        known = self._selector.get_map().get(descriptor)
        if not events:
            self._unwatch(descriptor)
        elif known is None:
            self._selector.register(descriptor, events, callback)
        elif known.events != events:
            self._selector.modify(descriptor, events, callback)

    def _unwatch(self, descriptor: int) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(descriptor)

    def _close_pipe(self, descriptor: int) -> None:
        self._unwatch(descriptor)
        os.close(descriptor)

    def _say(self, message: str) -> None:
        """Log a line about a client, at most MOST_LINES in LINES_EVERY seconds."""
        now = time.monotonic()
        self._lines = [one for one in self._lines if now - one < LINES_EVERY]
        if len(self._lines) < MOST_LINES:
            self._lines.append(now)
            log(f"agent: {message}")


def listen(port: int) -> socket.socket:
    """Listen at all addresses of IPv6 and IPv4. Raises ConfigurationError when that fails."""
    try:
        if socket.has_dualstack_ipv6():
            with suppress(OSError):
                return _listen(("::", port), socket.AF_INET6, dualstack=True)
        return _listen(("0.0.0.0", port), socket.AF_INET, dualstack=False)  # noqa: S104
    except OSError as problem:
        raise ConfigurationError(
            f"the agent cannot listen on port {port}: {problem}: with hostNetwork, each release on "
            "a node needs a port of its own: set agent.port"
        ) from problem


def _listen(address: tuple[str, int], family: int, *, dualstack: bool) -> socket.socket:
    return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=dualstack)


def main() -> int:
    """Serve until the worker's main program asks this process to end."""
    environment = os.environ
    parent = os.getppid()
    with suppress(ImportError, OSError):
        fast_start.set_process_option(fast_start.PR_SET_CHILD_SUBREAPER, 1)
        fast_start.die_with_parent(parent)
    port = int(environment["HVD_AGENT_PORT"])
    slots = int(environment.get("HVD_SLOTS", "1"))
    hosts = int(environment.get("HVD_HOSTS", "1"))
    per_address = BASE_CONNECTIONS + slots
    try:
        own_keys = keys.Keys(fast_start.KEYS, environment["HVD_MASTER_NAME"])
        own_keys.server()
        listener = listen(port)
    except RunError as problem:
        return report_failure(problem)
    agent = Agent(
        listener,
        own_keys,
        environment["HVD_REVISION"],
        Fence(parent, environment.get("HVD_METRICS_DIR", "")),
        environment,
        per_address,
        SOURCES * per_address + hosts,
    )
    log(f"ready for ranks: agent on port {port}")
    agent.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
