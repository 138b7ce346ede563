"""Asks the master's gateway to start a program in a worker. It is fast: launchers start many."""

from __future__ import annotations

import array
import json
import os
import socket

from hvd_pods.shared.contract import ATTEMPT, FENCE, NOTICES, RENDEZVOUS, RUN_ID
from hvd_pods.shared.paths import GENERATED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

GATEWAY_SOCKET = f"{GENERATED}/gateway.sock"
# The exit code for a program that could not be started, as with ssh.
REMOTE_NOT_STARTED = 255
PASSED_VARIABLES = (RUN_ID, FENCE, ATTEMPT, NOTICES, RENDEZVOUS)


def ask(
    host: str, argv: Sequence[str], streams: Sequence[int] = (0, 1, 2), stay: float = 0.0
) -> socket.socket:
    """Start a program on a host with these descriptors as its standard input, output and error.

    Return a connection, on which the exit code arrives as a line of text. The program ends when the
    connection is closed, unless the line `stay` was sent before: then it runs for `stay` more
    seconds. Raises OSError.
    """
    variables = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    request = {"host": host, "argv": list(argv), "variables": variables, "stay": stay}
    content = json.dumps(request).encode() + b"\n"
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(GATEWAY_SOCKET)
        rights = array.array("i", streams)
        sent = client.sendmsg([content], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        # The gateway may have responded already: even an empty write fails then.
        if sent < len(content):
            client.sendall(content[sent:])
    except OSError:
        client.close()
        raise
    return client
