"""Messages between a rank's client and the warm process: JSON with file descriptors attached."""

from __future__ import annotations

import array
import json
import os
import socket
import struct

from hvd_pods.common import fast_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Sequence

    Message = Dict[str, Any]

# This file exists while the warm process has imported its modules.
READY = f"{fast_start.GENERATED}/warm.ready"
_LENGTH = struct.Struct("!I")
# What a client sends when it is ready to pass on signals: no signal has this number.
GO = bytes([0])
# The kernel's limit for one message (SCM_MAX_FD).
MOST_DESCRIPTORS = 253


def send(connection: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send a message and copies of the descriptors."""
    body = json.dumps(message).encode()
    rights = array.array("i", descriptors)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
    connection.sendmsg([_LENGTH.pack(len(body))], ancillary)
    connection.sendall(body)


def receive(connection: socket.socket) -> tuple[Message, list[int]]:
    """Return a message and its descriptors. Raises ConnectionError when the other side has gone."""
    rights = array.array("i")
    space = socket.CMSG_SPACE(MOST_DESCRIPTORS * rights.itemsize)
    # No program that a rank starts may get these descriptors by accident.
    data, ancillary, _, _ = connection.recvmsg(_LENGTH.size, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            rights.frombytes(content[: len(content) - len(content) % rights.itemsize])
    try:
        header = data + _read(connection, _LENGTH.size - len(data))
        message: Message = json.loads(_read(connection, _LENGTH.unpack(header)[0]))
    except (OSError, ValueError):
        for descriptor in rights:
            os.close(descriptor)
        raise
    return message, list(rights)


def _read(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise ConnectionResetError("the other side closed the connection")
        content += part
    return content


def peer_uid(connection: socket.socket) -> int:
    """The user ID of the process on the other side, as the kernel knows it."""
    credentials = struct.Struct("3i")
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    return int(credentials.unpack(content)[1])
