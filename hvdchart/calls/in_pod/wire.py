"""The messages between the caller, the call server and the ranks: kind, number and bytes.

A message is sent in frames of FRAME_BYTES. Its last frame is shorter, and may be empty. So the
server can pass on the frames of a result without storing them. The image's own Python, 3.8 or
newer, runs this file: standard library only.
"""

from __future__ import annotations

import struct
from typing import IO, Callable, Iterator, NamedTuple

# The server's first message (JSON), a pickled call, and the end of a call (JSON): the launcher's
# exit code, and by rank the memory limit in bytes at which the kernel killed a process. An END from
# the caller reports lost workers: the server fails, so that the next attempt waits for new workers.
HELLO = b"H"
CALL = b"C"
END = b"E"
# A heartbeat, which both sides send; seconds between two heartbeats, and seconds of silence after
# which a side counts the other one as lost.
BEAT = b"B"
HEARTBEAT_INTERVAL_SECONDS = 20.0
SILENCE_TIMEOUT_SECONDS = 120.0
# Output of the ranks or of their launcher; the number of the frame is that of the stream.
OUTPUT = b"O"
STANDARD_OUTPUT = 1
STANDARD_ERROR = 2
# Add this to the number of a stream for the launcher's own.
LAUNCHER_STREAM_OFFSET = 2
RANK_STREAMS = (STANDARD_OUTPUT, STANDARD_ERROR)
LAUNCHER_STREAMS = (
    STANDARD_OUTPUT + LAUNCHER_STREAM_OFFSET,
    STANDARD_ERROR + LAUNCHER_STREAM_OFFSET,
)
# A rank's pickled result, its pickled failure (see rank.py), and the end of a rank without either;
# the number of the frame is the rank.
RESULT = b"R"
FAILURE = b"F"
GONE = b"G"
FRAME_BYTES = 1 << 20
# The largest size in bytes of a pickled call, which the master keeps in memory, and of a pickled
# result.
MAX_CALL_BYTES = 64 << 20
MAX_RESULT_BYTES = 1 << 30
_MESSAGE_HEADER = struct.Struct("!cIQ")


class Frame(NamedTuple):
    """A part of a message; `number` is a stream or a rank, by the kind, or 0."""

    kind: bytes
    number: int
    data: bytes

    @property
    def is_last(self) -> bool:
        """Whether the message ends with this frame."""
        return len(self.data) < FRAME_BYTES

    def encode(self) -> bytes:
        """Return the frame as it is sent: a header and the data."""
        return _MESSAGE_HEADER.pack(self.kind, self.number, len(self.data)) + self.data


def frames(kind: bytes, data: bytes, number: int = 0) -> Iterator[bytes]:
    """Yield the encoded frames of a message."""
    for start in range(0, len(data) + 1, FRAME_BYTES):
        yield Frame(kind, number, data[start : start + FRAME_BYTES]).encode()


def read_frame(stream: IO[bytes]) -> Frame | None:
    """Read the next frame; return None at the end of the stream, also within a frame.

    Raises ValueError for an invalid size.
    """
    header = stream.read(_MESSAGE_HEADER.size)
    if len(header) < _MESSAGE_HEADER.size:
        return None
    kind, number, size = _MESSAGE_HEADER.unpack(header)
    if size > FRAME_BYTES:
        raise ValueError("this is not a frame")
    data = stream.read(size)
    return Frame(kind, number, data) if len(data) == size else None


def read_message(next_frame: Callable[[], Frame | None], most: int) -> Frame | None:
    """Read the next message as one frame of any size; return None when there is no next frame.

    Raises ValueError for a message of more than `most` bytes.
    """
    parts = []
    size = 0
    while True:
        frame = next_frame()
        if frame is None:
            return None
        parts.append(frame.data)
        size += len(frame.data)
        if size > most:
            raise ValueError(f"the message has more than {most} bytes")
        if frame.is_last:
            return Frame(frame.kind, frame.number, b"".join(parts))
