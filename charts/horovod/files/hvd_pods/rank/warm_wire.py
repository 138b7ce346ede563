"""Messages between a rank's client and the warm process: JSON with file descriptors attached."""

from __future__ import annotations

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
# What a client sends when it is ready to pass on signals: no signal has this number.
GO = bytes([0])
# The kernel's limit for one message (SCM_MAX_FD), of which one has the JSON.
MOST_DESCRIPTORS = 253


def send(connection: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send a message and copies of the descriptors."""
    # In a file of its own, so that one byte is all that a receiver has to wait for.
    with open(os.memfd_create("message"), "w", encoding="ascii") as file:
        file.write(json.dumps(message))
        file.flush()
        socket.send_fds(connection, [b"m"], [file.fileno(), *descriptors])


def receive(connection: socket.socket) -> tuple[Message, list[int]]:
    """Return a message and its descriptors. Raises ConnectionError when the other side has gone."""
    # No program that a rank starts may get these descriptors by accident.
    flags = socket.MSG_CMSG_CLOEXEC
    _, received, _, _ = socket.recv_fds(connection, 1, MOST_DESCRIPTORS, flags)
    if not received:
        raise ConnectionResetError("the other side closed the connection")
    body, *descriptors = received
    try:
        with open(body, encoding="ascii") as file:
            file.seek(0)
            message: Message = json.load(file)
    except ValueError:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return message, descriptors


def peer_uid(connection: socket.socket) -> int:
    """The user ID of the process on the other side, as the kernel knows it."""
    credentials = struct.Struct("3i")
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    return int(credentials.unpack(content)[1])
