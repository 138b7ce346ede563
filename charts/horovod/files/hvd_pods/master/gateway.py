"""Starts programs in workers for the programs of this pod: mpirun's daemons, ranks, a script's.

A client connects to a socket of this pod, and passes its standard input, output and error with a
request: one line of JSON with host, argv and the variables of the attempt. The gateway opens an
agent connection to the worker, and writes the exit code when the program has ended. The client may
send the line `stay` before it disconnects. Only the gateway's process needs the keys. A client may
be as small as a shell that waits (master/ssh.py): a launcher keeps one for each worker.
"""

from __future__ import annotations

import json
import os
import select
import selectors
import socket
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Callable

from hvd_pods.master import gateway_client
from hvd_pods.master.agent_connection import AgentConnection, AgentConnectionError, make_request
from hvd_pods.master.gateway_client import REMOTE_NOT_STARTED
from hvd_pods.master.remote import AgentAccess
from hvd_pods.pod.connections import ACCEPT_RETRY_DELAY_SECONDS, BACKLOG
from hvd_pods.pod.ranks_program import STAY
from hvd_pods.pod.reporting import log
from hvd_pods.pod.streams import IO_CHUNK_BYTES
from hvd_pods.pod.threads import start_thread
from hvd_pods.protocol import frames
from hvd_pods.rules.events import EventSink, WorkerReached
from hvd_pods.shared.errors import RunError

MAX_COMMAND_BYTES = 1 << 17
# Stop reading the client's standard input while this many bytes wait for the program. The second
# limit is for output that waits for the client's streams: the worker pauses before.
MAX_UNSENT_INPUT_BYTES = 1 << 18
MAX_UNWRITTEN_OUTPUT_BYTES = 1 << 20
# Timeout in seconds for writing a message of the gateway itself to a client's stream.
MESSAGE_WRITE_TIMEOUT_SECONDS = 5.0
# Timeout in seconds for a client's request.
COMMAND_TIMEOUT_SECONDS = 10.0


class Gateway:
    """Serves clients in threads after `start`. `find_access` returns how workers are reached now.

    `put` is called with one WorkerReached in each attempt. A client has
    `request_timeout_seconds` to send its request.
    """

    def __init__(
        self,
        find_access: Callable[[], AgentAccess],
        put: EventSink,
        request_timeout_seconds: float = COMMAND_TIMEOUT_SECONDS,
    ) -> None:
        self._find_access = find_access
        self._put = put
        self._has_reported = False
        self._request_timeout_seconds = request_timeout_seconds
        self._has_started = False
        # Why workers have refused this master's keys, or this master theirs, since the last call of
        # `forget`.
        self.key_problem = ""

    def start(self) -> None:
        """Start to listen, if this is the first call. Raises OSError."""
        if self._has_started:
            return
        Path(gateway_client.GATEWAY_SOCKET).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            listener.bind(gateway_client.GATEWAY_SOCKET)
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
        self._has_started = True
        start_thread("gateway", partial(self._accept, listener))

    def forget(self) -> None:
        """Discard the reports of an ended attempt's agent connections."""
        self._has_reported = False
        self.key_problem = ""

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError as problem:
                # There are too many open files, or the client has disconnected.
                log(f"cannot take the request of a program of this pod: {problem}")
                time.sleep(ACCEPT_RETRY_DELAY_SECONDS)
                continue
            try:
                start_thread("connection", partial(self._serve, client))
            except RuntimeError as problem:
                log(f"cannot serve a program, as when the pod may have no more threads: {problem}")
                client.close()

    def _serve(self, client: socket.socket) -> None:
        with client:
            client.settimeout(self._request_timeout_seconds)
            streams: list[int] = []
            try:
                request = receive(client, streams)
                code = self._run(client, request, streams)
            except (OSError, ValueError, KeyError, TypeError) as problem:
                log(f"a program of this pod has made no request: {problem!r:.200}")
                code = REMOTE_NOT_STARTED
            finally:
                for stream in streams:
                    os.close(stream)
            # The client may have disconnected.
            with suppress(OSError):
                client.sendall(b"%d\n" % code)

    def _run(self, client: socket.socket, request: dict[str, Any], streams: list[int]) -> int:
        host = str(request["host"])
        try:
            access = self._find_access()
            address = access.agents.address(host)
            # A program without these variables, as after `env -i`, belongs to the present attempt.
            variables = {**access.variables, **dict(request["variables"])}
            stay = float(request.get("stay", 0.0))
            asked = make_request(list(request["argv"]), variables, stay)
            port = access.agents.port
            connection = AgentConnection(address, port, access.keys, asked, keeps_output=True)
        except (AgentConnectionError, RunError) as problem:
            return self._refuse(host, problem, streams[2])
        try:
            relay = Relay(connection, client, streams, lambda: self._note_reached(asked.attempt))
            return relay.follow()
        except AgentConnectionError as problem:
            return self._refuse(host, problem, streams[2])
        finally:
            connection.close()

    def _note_reached(self, attempt: int) -> None:
        if not self._has_reported:
            self._has_reported = True
            self._put(WorkerReached(attempt))

    def _refuse(self, host: str, problem: Exception, errors: int) -> int:
        if isinstance(problem, AgentConnectionError) and problem.is_sure:
            self.key_problem = self.key_problem or f"{host}: {problem}"
        with suppress(OSError):
            write(errors, f"[hvd] error: {host}: {problem}\n".encode())
        return REMOTE_NOT_STARTED


class Relay:
    """Forwards data between a client and the program in the worker, until one of them ends.

    Calls `note_reached` after it has sent the request to the worker.
    """

    def __init__(
        self,
        connection: AgentConnection,
        client: socket.socket,
        streams: list[int],
        note_reached: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._note_reached = note_reached
        self._client = client
        self._stdin, stdout, stderr = streams
        self._targets = {frames.OUTPUT: stdout, frames.ERRORS: stderr}
        # Output of the program that is not written to the client's streams yet.
        self._unwritten: list[tuple[int, bytes]] = []
        self._reads_stdin = True
        # Whether the client is connected, and whether the program has ended.
        self._is_open = True
        self._is_over = False

    def follow(self) -> int:
        """Return the program's exit code. Raises AgentConnectionError."""
        problem: AgentConnectionError | None = None
        while self._is_open and (self._unwritten or not self._is_over):
            try:
                for descriptor in self._wait():
                    if descriptor == self._client.fileno():
                        self._take_word()
                    elif not self._is_over:
                        self._read()
                self._write()
                if not self._is_over:
                    self._step()
            except AgentConnectionError as found:
                # First forward the earlier output of the program.
                problem = found
                self._is_over = True
        if problem:
            raise problem
        return (
            self._connection.exit_code
            if self._connection.exit_code is not None
            else REMOTE_NOT_STARTED
        )

    def _step(self) -> None:
        for kind, content in self._connection.step():
            if kind != frames.EXIT:
                self._unwritten.append((self._targets[kind], content))
        if self._connection.is_asked:
            self._note_reached()
        self._is_over = self._connection.exit_code is not None
        if sum(len(content) for _, content in self._unwritten) > MAX_UNWRITTEN_OUTPUT_BYTES:
            raise AgentConnectionError("it writes more than it may before that is passed on")

    def _wait(self) -> list[int]:
        """Wait until one of the descriptors is ready; return those that can be read."""
        reads = [self._client.fileno()]
        seconds_left = None
        poll = select.poll()
        if not self._is_over:
            seconds_left = self._connection.left()
            sends = self._connection.events & selectors.EVENT_WRITE
            events = select.POLLIN | (select.POLLOUT if sends else 0)
            poll.register(self._connection.fileno(), events)
            if self._reads_stdin and self._connection.waiting < MAX_UNSENT_INPUT_BYTES:
                reads.append(self._stdin)
        if self._unwritten:
            poll.register(self._unwritten[0][0], select.POLLOUT)
        for descriptor in reads:
            poll.register(descriptor, select.POLLIN)
        return [
            descriptor
            for descriptor, _ in poll.poll(None if seconds_left is None else 1000 * seconds_left)
            if descriptor in reads
        ]

    def _take_word(self) -> None:
        """Read the client's last message; if it disconnects, end the agent connection."""
        word = self._client.recv(len(STAY))
        if word == STAY:
            self._connection.send(frames.STAY)
        elif not word:
            self._is_open = False

    def _read(self) -> None:
        try:
            data = os.read(self._stdin, IO_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._reads_stdin = bool(data)
        self._connection.send(frames.INPUT, data)

    def _write(self) -> None:
        """Write as much as the streams take without blocking: the client may end meanwhile."""
        written = 0
        try:
            while self._unwritten and written < IO_CHUNK_BYTES and can_write(self._unwritten[0][0]):
                stream, content = self._unwritten.pop(0)
                # A writable pipe takes at least this many bytes.
                number = os.write(stream, content[: select.PIPE_BUF])
                written += number
                if number < len(content):
                    self._unwritten.insert(0, (stream, content[number:]))
        except OSError:
            # The stream has no reader: end the program's agent connection.
            self._is_open = False
        self._connection.acknowledge(written)


def can_write(stream: int) -> bool:
    """Whether a write to the stream does not block: a pipe is not full."""
    poll = select.poll()
    poll.register(stream, select.POLLOUT)
    return bool(poll.poll(0))


def receive(client: socket.socket, streams: list[int]) -> dict[str, Any]:
    """Receive a client's request, and its streams into `streams`. Raises OSError, ValueError."""
    content, ancillary, _, _ = client.recvmsg(
        MAX_COMMAND_BYTES, socket.CMSG_SPACE(3 * 4), socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            count = len(data) // 4
            streams += [
                int.from_bytes(data[4 * index : 4 * index + 4], "little") for index in range(count)
            ]
    while not content.endswith(b"\n"):
        part = client.recv(MAX_COMMAND_BYTES)
        content += part
        if not part or len(content) > MAX_COMMAND_BYTES:
            raise ValueError("no complete line")
    if len(streams) != 3:
        raise ValueError(f"{len(streams)} streams instead of 3")
    request = json.loads(content)
    if not isinstance(request, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - the content is wrong
    return request


def write(stream: int, content: bytes) -> None:
    """Write a message to a client's stream, if the stream takes it in time."""
    poll = select.poll()
    poll.register(stream, select.POLLOUT)
    while content and poll.poll(1000 * MESSAGE_WRITE_TIMEOUT_SECONDS):
        # A writable pipe takes this many bytes without blocking (pipe(7)).
        with suppress(BlockingIOError):
            content = content[os.write(stream, content[: select.PIPE_BUF]) :]
