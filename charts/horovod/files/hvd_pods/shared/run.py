"""The run and its workers, as the chart describes the run to the master.

The fields of Run, WorkerGroup, Code and Binding are the keys of the JSON in HVD_RUN, which the
template `horovod.run` writes. tests/chart/test_settings.py compares their names and types.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Sequence

from hvd_pods.shared.binding import Binding


@dataclass(frozen=True)
class Worker:
    """A worker: `name` is its pod's name, `address` the host name that the launcher uses."""

    name: str
    address: str
    slots: int
    stateful_set: str
    revision: str
    # Beyond the number of workers that the ranks need.
    is_spare: bool = False


class Pod(NamedTuple):
    """The pod of a worker at a moment. If only DNS is queried, `uid` and `node` are empty."""

    address: str
    uid: str = ""
    node: str = ""


class WorkerGroup(NamedTuple):
    """A group of workers."""

    stateful_set: str
    # How many workers the ranks start on, with how many the run can go on, and how many there are,
    # with spares.
    number: int
    minimum: int
    maximum: int
    slots: int
    revision: str
    # The node list of the group's data (cluster/staged.py), or "".
    staged: str


class Code(NamedTuple):
    """The user's code: its version, empty when the image has it, its SHA256, and its place.

    `sha256` is the digest of pod/code_archive.py, from the pod template of the Job.
    """

    version: str = ""
    sha256: str = ""
    config_map: str = ""


@dataclass(frozen=True)
class Run:
    """The run, as the chart's template `horovod.run` describes it. Times are in seconds."""

    # Hashes: of the values that decide what is trained, and of those that decide what runs and
    # where.
    id: str
    settings_hash: str
    groups: list[WorkerGroup]
    # Not in the JSON: `parse_run` lists them from the groups.
    workers: list[Worker]
    service: str
    # Selectors of the pods of all masters of the release, and of its workers.
    master_selector: str
    worker_selector: str
    args: list[str]
    mode: str
    options: list[str]
    workers_timeout_seconds: float
    interface: str
    # The port of the workers' agents, and the names in the certificates of both ends.
    agent_port: int
    master_name: str
    worker_name: str
    cleanup: str
    # The name of the ConfigMap with the record (rules/record_lock.py).
    record: str
    # Whether the master may use the API.
    has_api_access: bool
    # How long the first attempt waits for more workers than the minimum of each group.
    shrink_after_seconds: float
    binding: Binding
    transport: str
    # 0 with access to the API: the Job then has the number.
    backoff_limit: int
    # A worker that is silent for this long is lost; 0: never. The time is shorter if the ranks keep
    # their state (rules/run_state.py), unless a user has set it.
    lost_after_seconds: float
    is_lost_after_default: bool
    code: Code
    # Whether the workers install the packages in requirements.txt beside the code.
    installs_requirements: bool
    # The attempt ends after the others wait for a rank for this long; 0 for never.
    stall_timeout_seconds: float
    # Unless a user has set it, a rank that a signal has stopped ends the attempt earlier, depending
    # on the time of a step.
    is_stall_timeout_default: bool
    fail_on_nan: bool
    # A custom command may end with 0 without starting a program in a worker.
    allow_idle_workers: bool
    # How long the master may take to end after a request to end.
    grace_seconds: float

    @property
    def ranks(self) -> int:
        """Return the number of ranks to start with: the slots of all workers but the spares."""
        return sum(worker.slots for worker in self.workers if not worker.is_spare)

    @property
    def stateful_sets(self) -> list[str]:
        """Return the names of the StatefulSets, one for each group."""
        return [group.stateful_set for group in self.groups]

    @property
    def least_workers(self) -> dict[str, int]:
        """Return the minimum number of workers, by the name of the StatefulSet."""
        return {group.stateful_set: group.minimum for group in self.groups}

    @property
    def staged(self) -> dict[str, str]:
        """Return the node list of the data, by the name of the StatefulSet."""
        return {group.stateful_set: group.staged for group in self.groups}

    @property
    def is_elastic(self) -> bool:
        """Whether the run continues with fewer workers, and uses workers that join."""
        return self.least_workers != self.needed_workers

    def with_ranks_on(self, workers: Sequence[Worker]) -> Run:
        """Return this run for one attempt, with ranks on all of these workers and no others."""
        return replace(self, workers=[replace(worker, is_spare=False) for worker in workers])

    @functools.cached_property
    def needed_workers(self) -> dict[str, int]:
        """Return how many workers the ranks start on, by the name of the StatefulSet."""
        return self._count_workers(with_spares=False)

    @functools.cached_property
    def initial_workers(self) -> dict[str, int]:
        """Return how many workers are created to start with, including spares."""
        return self._count_workers(with_spares=True)

    def _count_workers(self, with_spares: bool) -> dict[str, int]:
        workers = (worker for worker in self.workers if with_spares or not worker.is_spare)
        numbers = Counter(worker.stateful_set for worker in workers)
        return {name: numbers[name] for name in self.stateful_sets}


def parse_run(text: str) -> Run:
    """Parse the JSON that the chart passes to the master in HVD_RUN.

    Raises LookupError, TypeError or ValueError for the JSON of another version of the chart.
    """
    document: dict[str, Any] = json.loads(text)
    groups = [WorkerGroup(**group) for group in document.pop("groups")]
    workers = [
        Worker(
            name=f"{group.stateful_set}-{ordinal}",
            address=f"{group.stateful_set}-{ordinal}.{document['service']}",
            slots=group.slots,
            stateful_set=group.stateful_set,
            revision=group.revision,
            is_spare=ordinal >= group.number,
        )
        for group in groups
        for ordinal in range(group.maximum)
    ]
    binding = Binding(**document.pop("binding"))
    code = Code(**document.pop("code"))
    return Run(groups=groups, workers=workers, binding=binding, code=code, **document)
