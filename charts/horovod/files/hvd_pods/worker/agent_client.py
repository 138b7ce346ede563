"""A client of a worker's agent: a connection, and the program that it requested."""

from __future__ import annotations

import secrets
import socket
import time
from contextlib import suppress
from typing import Callable, Iterator

from hvd_pods.pod import ranks_program
from hvd_pods.protocol import frames, keys, start_request
from hvd_pods.worker import io_loop
from hvd_pods.worker.client_log import ClientLog
from hvd_pods.worker.limits import AgentLimits
from hvd_pods.worker.program import Program

# The program waits while the master has not taken this many bytes of output. The master has the
# same limit for input that the program has not taken, except that it sends short input, such as the
# user's code, at once. The second limit ends the connection.
MAX_UNSENT_OUTPUT_BYTES = 1 << 18
MAX_UNREAD_INPUT_BYTES = 1 << 26
NEVER = float("inf")


class RefusedClientError(Exception):
    """A client is refused, for the reason in the message."""


class Client:
    """A connection, and the program that it requested.

    `handle_ready` is called when data can be read from the connection, or sent to it.
    """

    def __init__(
        self,
        loop: io_loop.Loop,
        connection: socket.socket,
        address: str,
        limits: AgentLimits,
        client_log: ClientLog,
        handle_ready: Callable[[Client], None],
    ) -> None:
        self.address = address
        # The connection times out at this moment unless its request has arrived.
        self.until = time.monotonic() + limits.silence_timeout_seconds
        self.request: start_request.StartRequest | None = None
        self.program: Program | None = None
        # The deadline to end the program, or to close a connection that the master should close.
        self.end_at = NEVER
        # Whether the program may go on for a limited time after the connection ends.
        self.may_continue = False
        self._loop = loop
        self._connection = connection
        self._limits = limits
        self._log = client_log
        self._handle_ready = handle_ready
        # None before the first byte arrives, and after the connection ends.
        self._channel: frames.Channel | None = None
        self._nonce = ""
        # Frames for the program that arrived before the program started, and their bytes.
        self._early_frames: list[tuple[bytes, bytes]] = []
        self._early_bytes = 0

    @property
    def is_connected(self) -> bool:
        """Whether the client has sent data, and its connection has not ended."""
        return self._channel is not None

    def greet(self, banner: bytes) -> None:
        """Send the line with the worker's revision. Raises OSError if the connection has ended."""
        self._connection.setblocking(False)
        with suppress(OSError):
            frames.keep_alive(self._connection)
        self._connection.send(banner)
        self._loop.watch(self._connection.fileno(), io_loop.READ, lambda: self._handle_ready(self))

    def receive(self, own_keys: keys.Keys) -> Iterator[tuple[bytes, bytes]]:
        """Yield the frames of the master that have arrived, and send pending data to it.

        Raises RefusedClientError for a client that is not the master, ConfigurationError if the
        agent has no usable keys, and OSError if the connection has ended.
        """
        channel = self._channel
        if channel is None:
            if not self._connection.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError("the connection has ended")
            channel = frames.Channel(self._connection, own_keys.server())
            self._channel = channel
            self.until = time.monotonic() + self._limits.request_timeout_seconds
        for kind, content in channel.receive():
            self._authenticate(own_keys, channel)
            yield kind, content
        if self._channel and channel.is_open:
            self._authenticate(own_keys, channel)

    def _authenticate(self, own_keys: keys.Keys, channel: frames.Channel) -> None:
        """Answer the handshake once, with a nonce that the connection's request must contain."""
        if self._nonce:
            return
        certificate = channel.certificate()
        if not keys.has_name(certificate, own_keys.peer_name):
            raise RefusedClientError(f"its certificate is not that of {own_keys.peer_name}")
        problem = keys.find_time_problem(certificate, time.time())
        if problem:
            raise RefusedClientError(keys.REFUSES_MASTER + problem)
        self._nonce = secrets.token_hex(16)
        channel.send(frames.HELLO, self._nonce.encode())

    def read_request(self, kind: bytes, content: bytes) -> start_request.StartRequest:
        """Return the request in the first frame. Raises RefusedClientError for another frame."""
        if kind != frames.REQUEST:
            raise RefusedClientError("its first frame is no request")
        try:
            self.request = start_request.parse(content, self._nonce)
        except start_request.RequestError as problem:
            raise RefusedClientError(str(problem)) from problem
        return self.request

    def take_frame(self, kind: bytes, content: bytes) -> None:
        """Pass a frame to the program, when it has started.

        Raises ProtocolError for a frame of another kind, and for too much input.
        """
        is_number = kind == frames.SIGNAL and len(content) == frames.NUMBER.size
        if not is_number and kind not in (frames.INPUT, frames.STAY):
            raise frames.ProtocolError(f"unexpected frame {kind!r}")
        unread = self.program.unread if self.program else self._early_bytes
        if unread + len(content) > MAX_UNREAD_INPUT_BYTES:
            raise frames.ProtocolError(f"more than {MAX_UNREAD_INPUT_BYTES} bytes of input wait")
        if self.program:
            self._pass_on(self.program, kind, content)
        else:
            self._early_frames.append((kind, content))
            self._early_bytes += len(content)

    def use_program(self, program: Program) -> None:
        """Pass frames to the program from now on, beginning with those that arrived before it."""
        self.program = program
        for kind, content in self._early_frames:
            self._pass_on(program, kind, content)
        self._early_frames = []

    def _pass_on(self, program: Program, kind: bytes, content: bytes) -> None:
        if kind == frames.INPUT:
            program.give(content)
        elif kind == frames.STAY:
            self.may_continue = True
            program.give(ranks_program.STAY)
        else:
            program.pass_on(frames.NUMBER.unpack(content)[0])

    def send(self, kind: bytes, content: bytes) -> None:
        """Send a frame, unless the connection has ended. Raises OSError if it ends now."""
        if self._channel:
            self._channel.send(kind, content)

    def acknowledge(self, number: int) -> None:
        """Tell the master that the program has taken this many bytes of input."""
        if self._channel:
            with suppress(OSError):
                self._channel.acknowledge(number)
            self.update()

    def update(self) -> None:
        """Watch the events that the connection and its program are ready for."""
        if not self._channel:
            return
        self._loop.watch(
            self._connection.fileno(), self._channel.events, lambda: self._handle_ready(self)
        )
        if self.program:
            self.program.read_output(self._channel.waiting <= MAX_UNSENT_OUTPUT_BYTES)

    def refuse(self, reason: str) -> None:
        """Send the client the reason for its refusal, and close its connection."""
        self._log.write(f"{self.address}: {reason}")
        if self._channel:
            with suppress(OSError):
                self._channel.send(frames.REFUSED, reason.encode()[: frames.MAX_FRAME_BYTES])
        self.close()

    def disconnect(self) -> None:
        """Close the connection. The program goes on."""
        if self._connection.fileno() >= 0:
            self._loop.unwatch(self._connection.fileno())
        self._connection.close()
        self._channel = None

    def close(self) -> None:
        """Close the connection, and the streams of a program that has ended."""
        if self.program:
            self.program.close()
        self.disconnect()
