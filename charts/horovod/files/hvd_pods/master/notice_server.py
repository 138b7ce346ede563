"""Takes the notices of workers (files/notices.py) in the master."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import socketserver
import threading
from typing import Any, Callable

from hvd_pods.common import notices
from hvd_pods.common.fence import EPOCH
from hvd_pods.common.notices import Notice
from hvd_pods.common.reporting import log

LONGEST_NOTICE = 4096


class Server(socketserver.ThreadingTCPServer):
    """The master's side: `take` is called, in a thread, with each notice of the present epoch.

    The end of the connection tells the sender that it may go on. A notice that `waits` has its
    `connection`, which `take` keeps until then.
    """

    daemon_threads = True
    # All workers of a large run may be asked to leave at once.
    request_queue_size = 1024

    def __init__(self, own_address: str, take: Callable[[Notice], None]) -> None:
        self.address_family = socket.AF_INET6 if ":" in own_address else socket.AF_INET
        self._take = take
        self._secret = secrets.token_hex(16)
        self._kept: set[Any] = set()
        super().__init__((own_address, 0), _Handler)
        # Launchers, and the master's own ssh, inherit it.
        os.environ[notices.ADDRESS] = f"{own_address},{self.server_address[1]},{self._secret}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def receive(self, line: bytes, connection: socket.socket) -> None:
        """Pass a notice on, unless it is not one of this run's present attempt."""
        try:
            notice = json.loads(line)
            if not hmac.compare_digest(notice.pop("secret"), self._secret):
                return
        except (ValueError, AttributeError, KeyError, TypeError):
            return
        if notice.pop("epoch", None) == os.environ.get(EPOCH, ""):
            if notice.pop("waits", False):
                notice["connection"] = connection
                self._kept.add(connection)
            self._take(notice)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, unless it is kept."""
        if request in self._kept:
            self._kept.discard(request)
        else:
            super().shutdown_request(request)


class _Handler(socketserver.StreamRequestHandler):
    timeout = notices.SEND_WITHIN
    server: Server

    def handle(self) -> None:
        try:
            self.server.receive(self.rfile.readline(LONGEST_NOTICE), self.request)
        except OSError:
            # The sender has gone.
            return


def serve(take: Callable[[Notice], None]) -> None:
    """Take notices until the end of this process. The run continues without them, too."""
    own = os.environ.get("HVD_POD_IP")
    try:
        if own:
            Server(own, take)
    except OSError as problem:
        log(
            f"cannot receive notices from the workers at {own}: {problem}; the log will not name "
            "workers that are terminated and ranks that are stopped"
        )
