"""The clients of a worker's agent that have sent no request, and the socket that accepts them."""

from __future__ import annotations

import errno
import socket
import time
from contextlib import suppress
from typing import Callable

from hvd_pods.pod.connections import ACCEPT_RETRY_DELAY_SECONDS, BACKLOG
from hvd_pods.shared.errors import ConfigurationError
from hvd_pods.worker import io_loop
from hvd_pods.worker.agent_client import NEVER, Client
from hvd_pods.worker.client_log import ClientLog
from hvd_pods.worker.limits import AgentLimits


def listen(port: int) -> socket.socket:
    """Listen on all IPv6 and IPv4 addresses. Raises ConfigurationError when that fails."""
    try:
        if socket.has_dualstack_ipv6():
            with suppress(OSError):
                return _listen(("::", port), socket.AF_INET6, dualstack=True)
        return _listen(("0.0.0.0", port), socket.AF_INET, dualstack=False)  # noqa: S104
    except OSError as problem:
        raise ConfigurationError(
            f"the agent cannot listen on port {port}: {problem}: with hostNetwork, each release on "
            "a node needs a port of its own: set `agent.port`"
        ) from problem


def _listen(address: tuple[str, int], family: int, *, dualstack: bool) -> socket.socket:
    return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=dualstack)


class PendingClients:
    """Accepts clients and greets them, until each one sends its request or times out.

    `handle_ready` is called when a client's connection is ready.
    """

    def __init__(
        self,
        loop: io_loop.Loop,
        listener: socket.socket,
        banner: bytes,
        limits: AgentLimits,
        client_log: ClientLog,
        handle_ready: Callable[[Client], None],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._banner = banner
        self._limits = limits
        self._log = client_log
        self._handle_ready = handle_ready
        # When to accept connections again.
        self._accept_at = NEVER
        # In the order of their arrival.
        self._clients: list[Client] = []
        self._watch_listener()

    @property
    def next_due(self) -> float:
        """The time of the next call of `handle_due`."""
        return min([self._accept_at, *(client.until for client in self._clients)])

    def handle_due(self, now: float) -> None:
        """Drop the clients whose time is over, and accept connections again after a delay."""
        for client in [client for client in self._clients if client.until <= now]:
            if client.is_connected:
                timeout_seconds = self._limits.request_timeout_seconds
                self._log.write(
                    f"{client.address} has sent no request within {timeout_seconds:g} s"
                )
            self._drop(client)
        if self._accept_at <= now:
            self._accept_at = NEVER
            self._watch_listener()

    def remove(self, client: Client) -> None:
        """Forget a client, which is refused, has sent a request or may be unknown."""
        with suppress(ValueError):
            self._clients.remove(client)

    def close(self) -> None:
        """Accept no more clients, and drop those that have sent no request."""
        self._loop.unwatch(self._listener.fileno())
        self._listener.close()
        self._accept_at = NEVER
        for client in list(self._clients):
            self._drop(client)

    def _watch_listener(self) -> None:
        self._loop.watch(self._listener.fileno(), io_loop.READ, self._accept)

    def _accept(self) -> None:
        try:
            connection, peer = self._listener.accept()
        except OSError as problem:
            self._log.write(f"cannot take a connection: {problem}")
            if problem.errno in (errno.EMFILE, errno.ENFILE):
                # The connection stays in the queue: without a delay, the loop would retry at once,
                # forever.
                self._loop.unwatch(self._listener.fileno())
                self._accept_at = time.monotonic() + ACCEPT_RETRY_DELAY_SECONDS
            return
        address = str(peer[0])
        self._make_room(address)
        client = Client(
            self._loop, connection, address, self._limits, self._log, self._handle_ready
        )
        self._clients.append(client)
        try:
            client.greet(self._banner)
        except OSError:
            self._drop(client)

    def _make_room(self, address: str) -> None:
        """Drop the oldest client, of the same address or of all, if there are too many."""
        same = [client for client in self._clients if client.address == address]
        if len(same) >= self._limits.per_address:
            self._drop(same[0])
        elif len(self._clients) >= self._limits.pending_clients:
            self._drop(self._clients[0])

    def _drop(self, client: Client) -> None:
        self.remove(client)
        client.close()
