"""A DNS server that continues to give the answers that it has once given."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# A query's number, which the answer repeats; names are compared without regard to case.
NUMBER_BYTES = 2
LONGEST_MESSAGE = 4096
ANSWER_SECONDS = 2.0
PORT = 53


class StaleDns:
    """Answers from memory while `stale`, counted in `repeated`, else from the cluster's server."""

    def __init__(self, address: str, cluster: str) -> None:
        self.stale = False
        self.repeated = 0
        self._cluster = cluster
        self._known: dict[bytes, bytes] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, PORT))

    def serve(self) -> None:
        """Answer until `close`."""
        with self._socket:
            while True:
                query, sender = self._socket.recvfrom(LONGEST_MESSAGE)
                if not query:
                    return
                answer = self._answer(query[NUMBER_BYTES:].lower(), query)
                if answer:
                    self._socket.sendto(query[:NUMBER_BYTES] + answer, sender)

    def close(self) -> None:
        """End `serve`."""
        self._socket.sendto(b"", self._socket.getsockname())

    def _answer(self, question: bytes, query: bytes) -> bytes | None:
        if self.stale and question in self._known:
            self.repeated += 1
        else:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
                asking.settimeout(ANSWER_SECONDS)
                try:
                    asking.sendto(query, (self._cluster, PORT))
                    self._known[question] = asking.recv(LONGEST_MESSAGE)[NUMBER_BYTES:]
                except TimeoutError:
                    return None
        return self._known[question]


@contextmanager
def stale_dns(address: str, cluster: str) -> Iterator[StaleDns]:
    """Serve on `address` in a thread."""
    server = StaleDns(address, cluster)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
