"""The master's side of a program that a worker's agent runs for the master."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from contextlib import suppress
from typing import Iterator, Mapping, NamedTuple, Sequence

from hvd_pods.protocol import frames, keys
from hvd_pods.protocol.banner import MAX_BANNER_BYTES, find_banner_problem
from hvd_pods.protocol.start_request import ALLOWED, RequestError, StartRequest
from hvd_pods.shared.contract import ATTEMPT, FENCE, RUN_ID
from hvd_pods.shared.errors import ConfigurationError

# Timeout in seconds, from the start of a connection, for both ends to present their certificates.
HANDSHAKE_TIMEOUT_SECONDS = 10.0


class AgentConnectionError(Exception):
    """The agent connection cannot be opened, or has ended; `is_sure`: the keys are the reason."""

    def __init__(self, message: str, *, is_sure: bool = False) -> None:
        super().__init__(message)
        self.is_sure = is_sure


class AgentAddresses(NamedTuple):
    """How the master reaches workers: the agents' port, and the addresses by worker name."""

    port: int
    addresses: Mapping[str, str]

    def address(self, name: str) -> str:
        """Return a worker's address by one of its names. Raises AgentConnectionError for others."""
        if name in self.addresses:
            return self.addresses[name]
        if name in self.addresses.values():
            return name
        raise AgentConnectionError(f"{name} is no worker of this run")


def make_request(
    argv: Sequence[str], variables: Mapping[str, str], stay: float = 0.0
) -> StartRequest:
    """Return a request for a program, for the run and attempt that these variables name."""
    return StartRequest(
        run=variables.get(RUN_ID, ""),
        fence=int(variables.get(FENCE) or 0),
        attempt=int(variables.get(ATTEMPT) or 0),
        argv=list(argv),
        variables={name: variables[name] for name in ALLOWED if variables.get(name)},
        stay=stay,
    )


class AgentConnection:
    """A connection to an agent, and the program that it starts.

    Wait for `events` on `fileno()`, at most until `due`, and then process the frames that `step`
    yields. No method blocks. `step` raises AgentConnectionError when the agent connection is no
    longer usable.

    keeps_output: the caller forwards the output later, and then calls `acknowledge`. The program
    blocks while too much output is unacknowledged.
    """

    def __init__(
        self,
        address: str,
        port: int,
        own_keys: keys.Keys,
        request: StartRequest,
        *,
        keeps_output: bool = False,
    ) -> None:
        self.address = address
        self._keeps_output = keeps_output
        self._port = port
        self._keys = own_keys
        self._request = request
        self._channel: frames.Channel | None = None
        self._banner = b""
        # The worker has presented its certificate and received the request.
        self.is_asked = False
        # Frames to send after the request.
        self._early: list[tuple[bytes, bytes]] = []
        self.due = time.monotonic() + HANDSHAKE_TIMEOUT_SECONDS
        self.exit_code: int | None = None
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._socket = socket.socket(family, socket.SOCK_STREAM)
            self._socket.setblocking(False)
            frames.keep_alive(self._socket)
            code = self._socket.connect_ex((address, port))
        except OSError as problem:
            raise AgentConnectionError(self._no_answer(problem)) from problem
        if code not in (0, errno.EINPROGRESS):
            self._socket.close()
            raise AgentConnectionError(self._no_answer(OSError(code, os.strerror(code))))

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def events(self) -> int:
        """The selector events to wait for."""
        return self._channel.events if self._channel else selectors.EVENT_READ

    @property
    def waiting(self) -> int:
        """The bytes of input that the program has not taken."""
        early = sum(len(content) for _, content in self._early)
        return early + (self._channel.waiting if self._channel else 0)

    def left(self) -> float | None:
        """Return the seconds until `due`; None when there is no limit."""
        return None if self.due == float("inf") else max(0.0, self.due - time.monotonic())

    def step(self) -> Iterator[tuple[bytes, bytes]]:
        """Continue; yield kind and content of each received frame, EXIT as the last one."""
        try:
            if time.monotonic() > self.due:
                raise AgentConnectionError(self._no_answer(socket.timeout("timed out")))
            channel = self._channel or self._read_banner()
            if channel is None:
                return
            for kind, content in channel.receive():
                yield from self._take(channel, kind, content)
        except OSError as problem:
            # A terminating worker may close the connection with its last frame.
            if self.exit_code is None:
                raise self._explain(problem) from problem
        except (ConfigurationError, RequestError) as problem:
            raise AgentConnectionError(str(problem), is_sure=True) from problem

    def _take(
        self, channel: frames.Channel, kind: bytes, content: bytes
    ) -> Iterator[tuple[bytes, bytes]]:
        if kind == frames.HELLO and not self.is_asked:
            wrong = keys.find_time_problem(channel.certificate(), time.time())
            if wrong:
                raise AgentConnectionError(f"the worker's certificate: {wrong}", is_sure=True)
            self.is_asked = True
            # No limit: the worker ends processes of earlier attempts before it starts the program.
            self.due = float("inf")
            nonce = content.decode("ascii", "replace")
            channel.send(frames.REQUEST, self._request.encode(nonce))
            for early in self._early:
                channel.send(*early)
            self._early = []
        elif kind == frames.REFUSED:
            text = content.decode(errors="replace")
            raise AgentConnectionError(text, is_sure=text.startswith(keys.REFUSES_MASTER))
        elif kind == frames.EXIT and len(content) == frames.NUMBER.size:
            number = frames.NUMBER.unpack(content)[0]
            self.exit_code = 128 - number if number < 0 else number
            yield kind, content
        elif kind in (frames.OUTPUT, frames.ERRORS):
            yield kind, content
            if not self._keeps_output:
                channel.acknowledge(len(content))
        else:
            raise frames.ProtocolError(f"unexpected frame {kind!r}")

    def _read_banner(self) -> frames.Channel | None:
        """Read the agent's first line and not a byte more; then start the handshake.

        Return None while the line is not complete.
        """
        while not self._banner.endswith(b"\n"):
            try:
                byte = self._socket.recv(1)
            except BlockingIOError:
                return None
            self._banner += byte
            if not byte or len(self._banner) > MAX_BANNER_BYTES:
                break
        banner = self._banner.decode("ascii", "replace").strip()
        wrong = find_banner_problem(banner, self._port)
        if wrong:
            raise AgentConnectionError(wrong.reason)
        self._channel = frames.Channel(self._socket, self._keys.client(), self._keys.peer_name)
        self._channel.begin()
        return self._channel

    def send(self, kind: bytes, content: bytes = b"") -> None:
        """Send a frame as soon as the worker has taken the request.

        Raises AgentConnectionError when the connection has ended.
        """
        if not self.is_asked or self._channel is None:
            self._early.append((kind, content))
            return
        try:
            self._channel.send(kind, content)
        except OSError as problem:
            raise self._explain(problem) from problem

    def acknowledge(self, number: int) -> None:
        """Allow the program to write this many more bytes."""
        # `step` handles the end of the connection, after all frames received before it.
        if self._channel:
            with suppress(OSError):
                self._channel.acknowledge(number)

    def _explain(self, problem: OSError) -> AgentConnectionError:
        if self._channel and not self.is_asked and not isinstance(problem, ConnectionResetError):
            text = keys.explain(problem, self._keys.peer_name)
            return AgentConnectionError(text, is_sure=keys.is_about_keys(problem))
        return AgentConnectionError(self._no_answer(problem))

    def _no_answer(self, problem: OSError) -> str:
        return f"port {self._port} of {self.address}: {problem.strerror or problem}"

    def close(self) -> None:
        """End the connection, and with it the program."""
        self._socket.close()
