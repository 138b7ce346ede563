"""The workers of a run for its master: their addresses, and agents that run a script."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from hvd_pods.cluster.addresses import DnsAddresses, Endpoint
from hvd_pods.protocol.banner import format_banner
from hvd_pods.shared import run
from hvd_pods.shared.no_answer import NoAnswer
from tests.support.fakes.agents import serve_as_agent
from tests.support.fakes.api import FakeApi
from tests.support.fakes.worker import FakeWorker
from tests.support.ports import find_port
from tests.support.release_keys import ReleaseKeys
from tests.support.runs import describe_run

SLICES = "discovery.k8s.io/endpointslices"


class Addresses(DnsAddresses):
    """Addresses that a test sets and changes, in place of those in DNS."""

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
        self._script = folder / "program.sh"
        self.install("exit 255")
        self.port = find_port()
        self._listening: dict[int, FakeWorker] = {}
        self.api.put(
            "apps/statefulsets", {"metadata": {"name": "hvd-worker"}, "spec": {"replicas": 2}}
        )

    def install(self, script: str) -> None:
        """Run this script over each agent connection: $1 is the worker, $2 the command line."""
        self._script.write_text(f"{script}\n")

    def address(self, ordinal: int) -> str:
        return f"127.0.1.{ordinal + 1}"

    def describe(self, number: int = 2, maximum: int = 0, **changes: Any) -> str:
        """Describe a run of `number` workers with two slots each."""
        group = {"stateful_set": "hvd-worker", "number": number, "maximum": maximum or number}
        groups = [{**group, "slots": 2, "revision": "r1"}]
        return describe_run(**{"groups": groups, "agent_port": self.port, **changes})

    def run(self, number: int = 2, maximum: int = 0, **changes: Any) -> run.Run:
        return run.parse_run(self.describe(number, maximum, **changes))

    def start(self, *ordinals: int) -> None:
        """Give pods addresses and start their agents."""
        for ordinal in ordinals:
            name = f"hvd-worker-{ordinal}"
            address = self.address(ordinal)
            host = f"{name}.hvd"
            serve = partial(serve_as_agent, keys=self._keys, script=self._script, address=host)
            self._listening[ordinal] = FakeWorker(format_banner("r1"), address, self.port, serve)
            endpoint = {
                "addresses": [address],
                "targetRef": {"kind": "Pod", "name": name, "uid": ""},
                "conditions": {"ready": True},
                "nodeName": f"node-{ordinal}",
            }
            metadata = {"name": name, "labels": {"kubernetes.io/service-name": "hvd"}}
            self.api.put(SLICES, {"metadata": metadata, "endpoints": [endpoint]})

    def stop(self, ordinal: int) -> None:
        """Stop a worker: it closes its port, and its address is withdrawn."""
        self._listening.pop(ordinal).close()
        self.api.remove(SLICES, f"hvd-worker-{ordinal}")

    def lose(self, connections: int) -> None:
        """Accept the next connections to each worker, and close them at once."""
        for worker in self._listening.values():
            worker.lost = connections

    def close(self) -> None:
        for worker in self._listening.values():
            worker.close()
