"""The plan of a run that measures: the spec's nodes and settings, with another command. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.spec.model import Launch, Spec
from hvdchart.spec.validate import STATEFULSET_NAME_LIMIT


def measuring_plan(plan: Plan, purpose: str, command: Sequence[str], workers: int) -> Plan:
    """The plan's first group with `workers` workers, and a command that starts the ranks itself.

    The chart replaces the command's argument $(LAUNCH) by the launcher's line, for the image's own
    MPI, with the bindings of the plan. The run is named NAME-PURPOSE.
    """
    spec = plan.spec
    group = spec.nodes[0]
    unbound = dataclasses.replace(group.tuning, binding=None)
    # Its StatefulSet is named NAME-PURPOSE-worker.
    longest = STATEFULSET_NAME_LIMIT - len(f"-{purpose}-worker")
    # Options of horovodrun are not options of mpirun.
    options = spec.launch.options if spec.launch.mode == "mpirun" else ()
    timeout = spec.launch.hosts_timeout_seconds
    measured: Spec = dataclasses.replace(
        spec,
        name=f"{spec.name[:longest].rstrip('-')}-{purpose}",
        nodes=(dataclasses.replace(group, count=workers, spares=0, tuning=unbound),),
        tuning=dataclasses.replace(spec.tuning, binding=plan.launching.binding.to),
        train=dataclasses.replace(spec.train, command=tuple(command), retries=0),
        launch=Launch(mode="custom", options=options, hosts_timeout_seconds=timeout),
    )
    return make_plan(measured, plan.tree)
