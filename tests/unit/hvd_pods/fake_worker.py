"""Workers for tests: sockets on loopback addresses that send what an agent would send."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from hvd_pods.agent.banner import NoAnswer, format_banner
from hvd_pods.cluster.addresses import DnsAddresses, Endpoint
from hvd_pods.common import run
from tests.support.fakes.api import FakeApi
from tests.support.ports import find_port
from tests.unit.hvd_pods.release_keys import ReleaseKeys
from tests.unit.hvd_pods.runs import describe_run
from tests.unit.hvd_pods.scripted_agents import serve_session

SLICES = "discovery.k8s.io/endpointslices"


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


class Addresses(DnsAddresses):
    """Addresses that a test knows and changes, in the place of those in DNS."""

    missing = NoAnswer("no address")

    def __init__(self, **known: Endpoint) -> None:
        super().__init__([])
        self.known = known

    def endpoints(self) -> dict[str, Endpoint]:
        return self.known


class Workers:
    """The workers hvd-worker-0, -1 and so on, at 127.0.1.1, .2 and so on, all on one port."""

    def __init__(self, api: FakeApi, release: ReleaseKeys, folder: Path) -> None:
        self.api = api
        self._keys = release.of_worker(folder / "worker-keys")
        self._script = folder / "session.sh"
        self.install("exit 255")
        self.port = find_port()
        self._listening: dict[int, FakeWorker] = {}
        self.api.put(
            "apps/statefulsets", {"metadata": {"name": "hvd-worker"}, "spec": {"replicas": 2}}
        )

    def install(self, script: str) -> None:
        """Run this script in each session: $1 is the worker, $2 the command line."""
        self._script.write_text(f"{script}\n")

    def address(self, ordinal: int) -> str:
        return f"127.0.1.{ordinal + 1}"

    def describe(self, number: int = 2, maximum: int = 0, **changes: Any) -> str:
        """Describe a run of `number` workers with two slots each."""
        group = {"statefulSet": "hvd-worker", "number": number, "maximum": maximum or number}
        groups = [{**group, "slots": 2, "revision": "r1"}]
        return describe_run(**{"groups": groups, "agentPort": self.port, **changes})

    def run(self, number: int = 2, maximum: int = 0, **changes: Any) -> run.Run:
        return run.parse_run(self.describe(number, maximum, **changes))

    def start(self, *ordinals: int) -> None:
        """Give pods addresses and let them listen."""
        for ordinal in ordinals:
            name = f"hvd-worker-{ordinal}"
            address = self.address(ordinal)
            self._listening[ordinal] = FakeWorker(
                format_banner("r1"),
                address,
                self.port,
                partial(serve_session, keys=self._keys, script=self._script, address=f"{name}.hvd"),
            )
            endpoint = {
                "addresses": [address],
                "targetRef": {"kind": "Pod", "name": name, "uid": ""},
                "conditions": {"ready": True},
                "nodeName": f"node-{ordinal}",
            }
            metadata = {"name": name, "labels": {"kubernetes.io/service-name": "hvd"}}
            self.api.put(SLICES, {"metadata": metadata, "endpoints": [endpoint]})

    def stop(self, ordinal: int) -> None:
        """End a worker: it no longer listens, and its address is withdrawn."""
        self._listening.pop(ordinal).close()
        self.api.remove(SLICES, f"hvd-worker-{ordinal}")

    def lose(self, connections: int) -> None:
        """Accept the next connections to each worker, and end them at once."""
        for worker in self._listening.values():
            worker.lost = connections

    def close(self) -> None:
        for worker in self._listening.values():
            worker.close()
