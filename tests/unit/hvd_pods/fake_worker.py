"""Workers for tests: sockets on loopback addresses that send what an agent would send."""

from __future__ import annotations

import socket
import threading
from typing import Any

from hvd_pods.agent.banner import format_banner
from hvd_pods.cluster.addresses import DnsAddresses, Endpoint
from hvd_pods.common import run
from tests.fakes.api import FakeApi
from tests.ports import find_port
from tests.unit.hvd_pods.runs import describe_run

SLICES = "discovery.k8s.io/endpointslices"


class FakeWorker:
    """Listens on an address of 127.0.0.0/8 or ::1, and sends `banner` to whoever connects.

    As an agent, it then waits. With None it sends nothing, and with an empty banner it ends at
    once. A test may change the banner.
    """

    def __init__(self, banner: bytes | None, address: str = "127.0.0.1", port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, port), family=family)
        self.address = address
        self.port = int(self._listener.getsockname()[1])
        self.banner = banner
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
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
                self.connections.append(connection)
                if self.banner is not None:
                    connection.sendall(self.banner)
            except OSError:
                # The test is over.
                return
            if self.banner == b"":
                connection.close()


class Addresses(DnsAddresses):
    """Addresses that a test knows and changes, in the place of those in DNS."""

    missing = "no address"

    def __init__(self, **known: Endpoint) -> None:
        super().__init__([])
        self.known = known

    def endpoints(self) -> dict[str, Endpoint]:
        return self.known


class Workers:
    """The workers hvd-worker-0, -1 and so on, at 127.0.1.1, .2 and so on, all on one port."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.port = find_port()
        self._listening: dict[int, FakeWorker] = {}
        self.api.put(
            "apps/statefulsets", {"metadata": {"name": "hvd-worker"}, "spec": {"replicas": 2}}
        )

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
            self._listening[ordinal] = FakeWorker(format_banner("r1"), address, self.port)
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

    def close(self) -> None:
        for worker in self._listening.values():
            worker.close()
