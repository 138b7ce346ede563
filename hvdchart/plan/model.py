"""The plan as plain data: for each group of workers, and for the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from hvdchart.plan.binding import LaunchPlan
from hvdchart.plan.framework import Framework
from hvdchart.plan.rules import Reason
from hvdchart.quantity import cpu_text, memory_text
from hvdchart.spec.model import NodeGroup, Spec
from hvdchart.spec.yaml_tree import Node


@dataclass(frozen=True)
class GroupPlan:
    """The plan of one group's workers.

    `cpu` is in thousandths, `memory` and `shm` in bytes; None: the spec does not give the node's
    size. `reasons` has the reason for each planned number, by its key in the values of a worker.
    """

    group: NodeGroup
    slots: int
    env: Mapping[str, str]
    cpu: int | None
    memory: int | None
    shm: int
    reasons: Mapping[str, Reason]

    @property
    def ranks(self) -> int:
        """Ranks on all nodes of the group."""
        return self.group.count * self.slots

    @property
    def requests(self) -> Mapping[str, str]:
        """Resource requests of a worker."""
        requests = {}
        if self.cpu is not None:
            requests["cpu"] = cpu_text(self.cpu)
        if self.memory is not None:
            requests["memory"] = memory_text(self.memory)
        return requests

    @property
    def limits(self) -> Mapping[str, str]:
        """Resource limits of a worker, without a CPU limit: a throttled rank delays all others.

        With the static CPU manager limits equal requests, which gives a pod exclusive cores.
        """
        limits = dict(self.requests)
        if self.group.cpu_manager != "static":
            limits.pop("cpu", None)
        if self.group.gpus:
            limits[self.group.gpu_resource] = str(self.group.gpus)
        if self.group.rdma:
            limits[self.group.rdma.resource] = str(self.group.rdma.count)
        return limits


@dataclass(frozen=True)
class Plan:
    """The plan of a run. `shm` is in bytes; `warnings` each say what to do.

    `tree` is the YAML that the spec was read from, for the places in messages.
    """

    spec: Spec
    groups: tuple[GroupPlan, ...]
    launching: LaunchPlan
    shm: int
    shm_reason: Reason
    warnings: tuple[str, ...]
    framework: Framework
    tree: Node | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def ranks(self) -> int:
        """Ranks of the run: mpirun's np."""
        return sum(group.ranks for group in self.groups)

    @property
    def workers(self) -> int:
        """Worker pods that ranks start on."""
        return sum(group.group.count for group in self.groups)

    @property
    def spares(self) -> int:
        """Worker pods that wait without ranks."""
        return sum(group.group.spares for group in self.groups)

    @property
    def global_batch(self) -> int | None:
        """Samples in one step of all ranks; None when the spec has no batch size."""
        batch = self.spec.train.batch_size
        return None if batch is None else batch * self.ranks
