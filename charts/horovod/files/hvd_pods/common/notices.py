"""Notices: what workers report to the master during an attempt, each a line of JSON over TCP.

The launchers' own connections cannot carry them: a notice would have to go through the output of a
rank, which may be a socket, a file or closed. The master's address and a secret come with each
request to an agent, as the fence number does.
"""

from __future__ import annotations

import json
import socket

from hvd_pods.common import contract

ADDRESS = contract.NOTICES
# Kinds of notices about a rank: the exception that ends it, its failure, that it has ended with 0,
# that it was asked to end, and that its script has ended after that.
RAISED = "raised"
FAILED = "failed"
FINISHED = "finished"
ASKED = "asked"
ENDED = "ended"
# A rank whose state is in the memory of its worker, so that its end costs no step.
KEPT = "kept"
# A rank that a signal has stopped, one that a debugger holds, one that uses no CPU, and a worker
# whose pod is terminating.
STOPPED = "stopped"
DEBUGGED = "debugged"
IDLE = "idle"
LEAVING = "leaving"
# Seconds between two looks of a worker at its ranks.
LOOK_EVERY = 5.0
# Seconds in which a notice has to be sent.
SEND_WITHIN = 3.0


def parse_address(text: str) -> tuple[str, str, str]:
    """The host, the port and the secret of HOST,PORT,SECRET; empty where it has none."""
    host, _, rest = text.partition(",")
    port, _, secret = rest.partition(",")
    return host, port, secret


def send(address: str, fence: str, answer_within: float = SEND_WITHIN, **content: object) -> None:
    """Send a notice to the master with this fence number, which must answer in time.

    It has `answer_within` seconds. The answer is that the master closes the connection. Raises
    OSError when it does not answer or cannot be reached, and ValueError for what is no address.
    """
    host, port, secret = parse_address(address)
    line = json.dumps({"secret": secret, "fence": fence, **content}) + "\n"
    with socket.create_connection((host, int(port)), SEND_WITHIN) as connection:
        connection.sendall(line.encode())
        connection.settimeout(answer_within)
        # The master closes the connection when it has taken the notice.
        connection.recv(1)
