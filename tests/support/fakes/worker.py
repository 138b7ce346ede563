"""A worker's port on a loopback address, which sends what an agent would send."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class FakeWorker:
    """Listens on an address of 127.0.0.0/8 or ::1, and sends `banner` to whoever connects.

    As an agent, it then waits. With None it sends nothing, and with an empty banner it ends at
    once, as it does with the next `lost` connections. A test may change the banner. `serve` gets a
    connection when its client sends something.
    """

    def __init__(
        self,
        banner: bytes | None,
        address: str = "127.0.0.1",
        port: int = 0,
        serve: Callable[[socket.socket], None] | None = None,
    ) -> None:
        self._serve = serve
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, port), family=family)
        self.address = address
        self.port = int(self._listener.getsockname()[1])
        self.banner = banner
        self.lost = 0
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening: connections are refused from now on."""
        if self._listener.fileno() >= 0:
            # Wakes the thread, which a mere close would leave in accept().
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for connection in self.connections:
            # Wakes the thread that reads from it.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
                if self.lost:
                    self.lost -= 1
                    connection.close()
                    continue
                self.connections.append(connection)
                if self.banner is not None:
                    connection.sendall(self.banner)
            except OSError:
                # The test is over.
                return
            if self.banner == b"":
                connection.close()
            elif self._serve:
                threading.Thread(target=self._follow, args=[connection], daemon=True).start()

    def _follow(self, connection: socket.socket) -> None:
        # Either end may close the connection at any moment.
        with suppress(OSError):
            if self._serve and connection.recv(1, socket.MSG_PEEK):
                self._serve(connection)
                connection.close()
