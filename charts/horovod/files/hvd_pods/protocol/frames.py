"""Frames over TLS on a non-blocking socket; both ends of an agent's connection use this module.

A frame is a letter, the length of its content as four bytes (most significant first), and the
content. The worker sends HELLO, then OUTPUT and ERRORS in any number, then EXIT. The master sends
REQUEST in answer to HELLO, then INPUT, SIGNAL and STAY in any number.

Both ends always read, even while the program, or the reader of its output, does not. Otherwise they
would not notice the end of the connection, and the kernels give up a connection that no process
reads. With TAKEN, each end acknowledges how much of INPUT, OUTPUT and ERRORS it has passed on. The
other end stops sending while too much is unacknowledged.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import struct

from hvd_pods.pod.streams import IO_CHUNK_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

FRAME_HEADER = struct.Struct("!cI")
# The most bytes of one frame's content. Longer content is sent as several frames.
MAX_FRAME_BYTES = 1 << 16
# The nonce of this connection.
HELLO = b"h"
# The program to start, as JSON (protocol/start_request.py), with the nonce.
REQUEST = b"r"
# Standard input. Empty content marks its end.
INPUT = b"i"
# The number of a signal, as four bytes, for the program.
SIGNAL = b"s"
# The program continues without this connection.
STAY = b"y"
OUTPUT = b"o"
ERRORS = b"e"
# The exit code as four bytes; negative for a signal.
EXIT = b"x"
# The reason why no program starts, as text.
REFUSED = b"n"
# The number of bytes of INPUT, or of OUTPUT and ERRORS, that were passed on, as four bytes.
TAKEN = b"t"
STREAMS = (INPUT, OUTPUT, ERRORS)
NUMBER = struct.Struct("!i")
# Send one acknowledgement for this many bytes.
ACKNOWLEDGED_BYTES = 1 << 14
# Seconds: the kernel drops a connection whose other end has not responded for about a minute. With
# TCP alone, a network failure would be detected after hours, and the ranks would run on.
AGENT_KEEPALIVE_IDLE_SECONDS = 15
AGENT_KEEPALIVE_INTERVAL_SECONDS = 15
AGENT_KEEPALIVE_PROBES = 3
UNSENT_TIMEOUT_SECONDS = 60


class ProtocolError(OSError):
    """The other end violates the protocol."""


class Channel:
    """One end of a connection. The constructor does not begin the handshake.

    At a master's end, `name` is the name that the worker's certificate must have. Methods raise
    OSError (also ssl.SSLError and ProtocolError) when the connection is not usable any more.
    """

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, name: str | None = None
    ) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.is_open = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=name is None, server_hostname=name
        )
        self._received = bytearray()
        # Data that is not encrypted yet, and encrypted data that is not sent yet.
        self._queued = bytearray()
        self._unsent = bytearray()
        self._has_ended = False
        # Bytes that the other end has not passed on, and bytes that this end has not acknowledged.
        self._untaken = 0
        self._unacknowledged = 0

    @property
    def waiting(self) -> int:
        """Return the bytes that the other end has not passed on.

        A sender pauses while they are many. The other end acknowledges them in steps of
        ACKNOWLEDGED_BYTES.
        """
        return self._untaken

    @property
    def events(self) -> int:
        """Return the events to wait for with a selector."""
        is_sending = self._queued or self._unsent
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if is_sending else 0)

    def certificate(self) -> object:
        """Return the other end's certificate after the handshake."""
        return self._tls.getpeercert()

    def send(self, kind: bytes, content: bytes = b"") -> None:
        """Send content of any length as soon as the connection can take it."""
        if kind in STREAMS:
            self._untaken += len(content)
        view = memoryview(content)
        while True:
            part = view[:MAX_FRAME_BYTES]
            self._queued += FRAME_HEADER.pack(kind, len(part)) + part
            view = view[MAX_FRAME_BYTES:]
            if not view:
                break
        self.flush()

    def acknowledge(self, number: int) -> None:
        """Acknowledge that this end has passed on `number` more bytes."""
        self._unacknowledged += number
        if self._unacknowledged >= ACKNOWLEDGED_BYTES:
            self.send(TAKEN, NUMBER.pack(self._unacknowledged))
            self._unacknowledged = 0

    def flush(self) -> None:
        """Send the data that the connection can take now."""
        while self.is_open and self._queued:
            del self._queued[: self._tls.write(self._queued)]
        self._unsent += self._outgoing.read()
        try:
            while self._unsent:
                del self._unsent[: self.connection.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            # Read the data that the other end sent before its end, and then the end.
            self._queued.clear()
            self._unsent.clear()

    def begin(self) -> None:
        """Begin the handshake at the master's end; the worker's end waits for it."""
        self._shake_hands()
        self.flush()

    def receive(self) -> Iterator[tuple[bytes, bytes]]:
        """Read the available data without blocking; yield kind and content of each complete frame.

        Raises ConnectionResetError at the end of the connection.
        """
        problem: OSError | None = None
        try:
            self._read()
            self.flush()
        except OSError as found:
            problem = found
        # The frames that arrived before the problem are valid.
        yield from self._frames()
        if problem:
            raise problem
        if self._has_ended:
            raise ConnectionResetError("the connection has ended")

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = self.connection.recv(IO_CHUNK_BYTES)
            if data:
                self._incoming.write(data)
            else:
                self._has_ended = True
        if not self.is_open:
            self._shake_hands()
        if self.is_open:
            self._decrypt()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
            self.is_open = True
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError:
            # The alert tells the other end the reason.
            with contextlib.suppress(OSError):
                self.flush()
            raise

    def _decrypt(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            while True:
                data = self._tls.read(IO_CHUNK_BYTES)
                if not data:
                    self._has_ended = True
                    return
                self._received += data

    def _frames(self) -> Iterator[tuple[bytes, bytes]]:
        while len(self._received) >= FRAME_HEADER.size:
            kind, length = FRAME_HEADER.unpack_from(self._received)
            if length > MAX_FRAME_BYTES:
                raise ProtocolError(
                    f"a frame of {length} bytes; at most {MAX_FRAME_BYTES} are allowed"
                )
            if len(self._received) < FRAME_HEADER.size + length:
                return
            content = bytes(self._received[FRAME_HEADER.size : FRAME_HEADER.size + length])
            del self._received[: FRAME_HEADER.size + length]
            if kind != TAKEN:
                yield kind, content
            elif length != NUMBER.size:
                raise ProtocolError(f"a number of {length} bytes")
            else:
                self._untaken = max(0, self._untaken - max(0, NUMBER.unpack(content)[0]))

    def close(self) -> None:
        """Close the connection at once."""
        self.connection.close()


def keep_alive(connection: socket.socket) -> None:
    """Let the kernel drop a connection whose other end does not respond for about a minute."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, AGENT_KEEPALIVE_IDLE_SECONDS)
    connection.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, AGENT_KEEPALIVE_INTERVAL_SECONDS
    )
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, AGENT_KEEPALIVE_PROBES)
    connection.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNSENT_TIMEOUT_SECONDS
    )
