"""Notices: reports of workers to the master during an attempt, each a line of JSON over TCP.

The launchers' own connections cannot carry them: a notice would have to go through the output of a
rank, which may be a socket, a file or closed. The master's address and a secret come with each
request to an agent, like the fence number.
"""

from __future__ import annotations

import json
import socket

from hvd_pods.shared import contract

ADDRESS = contract.NOTICES
# The timeout in seconds for sending a notice.
NOTICE_SEND_TIMEOUT_SECONDS = 3.0


def parse_address(text: str) -> tuple[str, str, str]:
    """Return the host, port and secret of HOST,PORT,SECRET; missing parts are empty."""
    host, _, rest = text.partition(",")
    port, _, secret = rest.partition(",")
    return host, port, secret


def send(
    address: str,
    fence: str,
    answer_timeout_seconds: float = NOTICE_SEND_TIMEOUT_SECONDS,
    **content: object,
) -> None:
    """Send a notice to the master with this fence number, and wait for its response.

    The master responds by closing the connection. Raises OSError when it does not respond or cannot
    be reached, and ValueError for an invalid address.
    """
    host, port, secret = parse_address(address)
    line = json.dumps({"secret": secret, "fence": fence, **content}) + "\n"
    with socket.create_connection((host, int(port)), NOTICE_SEND_TIMEOUT_SECONDS) as connection:
        connection.sendall(line.encode())
        connection.settimeout(answer_timeout_seconds)
        # The master closes the connection when it has handled the notice.
        connection.recv(1)
