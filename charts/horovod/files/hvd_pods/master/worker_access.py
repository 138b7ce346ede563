"""How the master reaches the workers now: its keys, their addresses, and the variables of requests.

All attempts share the keys and the addresses.
"""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Mapping, Sequence

from hvd_pods.cluster.key_secrets import Folders, find_keys
from hvd_pods.cluster.kube import Api
from hvd_pods.master.agent_connection import AgentAddresses
from hvd_pods.master.remote import AgentAccess
from hvd_pods.protocol.keys import Keys
from hvd_pods.rules.run_state import Assignment
from hvd_pods.shared.errors import RunError
from hvd_pods.shared.paths import GENERATED, KEYS
from hvd_pods.shared.run import Worker

# Timeout in seconds for the master's keys.
KEYS_TIMEOUT_SECONDS = 60.0


class WorkerAccess:
    """What requests to workers need. Other threads read it: its parts are replaced, never changed.

    `variables` are those of the present attempt, which each request has (worker/fence.py).
    """

    def __init__(self, assignment: Assignment, api: Api | None) -> None:
        self._assignment = assignment
        self._api = api
        self._keys: Future[Keys] = Future()
        self._agents = AgentAddresses(assignment.run.agent_port, {})
        self.variables: Mapping[str, str] = {}

    @property
    def addresses(self) -> Mapping[str, str]:
        """Return the known addresses, by each name of a worker."""
        return self._agents.addresses

    def take_keys(self) -> None:
        """Find the master's keys, or make them. Raises RunError."""
        if not self._keys.done():
            run = self._assignment.run
            folder = find_keys(self._api, run, Folders(Path(KEYS), Path(GENERATED)))
            keys = Keys(str(folder), run.worker_name)
            keys.client()
            self._keys.set_result(keys)

    def find(self) -> AgentAccess:
        """Return how workers are reached now. Raises RunError if the keys are not found in time."""
        try:
            keys = self._keys.result(KEYS_TIMEOUT_SECONDS)
        except FutureTimeoutError:
            raise RunError("the master has no keys yet") from None
        return AgentAccess(keys, self._agents, self.variables)

    def note_addresses(self, addresses: Mapping[str, str]) -> None:
        """Store the workers' addresses under each of their names. Only the loop's thread may."""
        workers = {self._assignment.workers[name]: address for name, address in addresses.items()}
        by_name = {
            name: address
            for worker, address in workers.items()
            for name in (worker.name, worker.address)
        }
        # Keep known addresses: an effect may name workers other than those of the launch.
        self._agents = self._agents._replace(addresses={**self._agents.addresses, **by_name})

    def workers_named(self, names: Sequence[str]) -> list[Worker]:
        """Return the workers with these names."""
        return [self._assignment.workers[name] for name in names]
