"""Two hosts, and what follows their addresses."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hvd_pods.common.run import Host
from hvd_pods.master import addresses
from tests.fakes import faults
from tests.unit.podfiles.runs import make_run

HOST = Host("hvd-worker-0", "hvd-worker-0.hvd", 1, "hvd-worker", "r1")
OTHER = Host("hvd-worker-1", "hvd-worker-1.hvd", 1, "hvd-worker", "r1")
IPV4, IPV6 = "10.0.0.7", "fd00::7"
RUN = make_run(
    groups=[{"statefulSet": "hvd-worker", "number": 2, "maximum": 2, "slots": 1, "revision": "r1"}]
)
# The addresses of names in DNS. An empty list: the DNS server does not answer.
Names = dict[str, list[str]]


class Follower:
    """Follows addresses, and waits for what a test expects of them."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.source: addresses.SliceAddresses | addresses.DnsAddresses

    def start(self, source: addresses.SliceAddresses | addresses.DnsAddresses) -> None:
        self.source = source
        source.start()

    def on_change(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def find(self, host: Host) -> str | None:
        endpoint = self.source.endpoints().get(host.name)
        return endpoint and endpoint.address

    def wait(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, faults.TIMEOUT)

    def wait_for(self, host: Host, address: str | None) -> None:
        self.wait(lambda: self.find(host) == address)
