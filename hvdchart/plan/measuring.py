"""The plan of a run that measures: the spec's nodes and settings, with another command. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.spec.model import Launch, Spec
from hvdchart.spec.tuning import Tuning
from hvdchart.spec.validate import STATEFULSET_NAME_LIMIT


def measuring_plan(plan: Plan, purpose: str, command: Sequence[str], workers: int) -> Plan:
    """The plan's first group with `workers` workers, and a command that starts the ranks itself.

    The chart replaces the command's argument $(LAUNCH) by the launcher's line, for the image's own
    MPI. The run is named NAME-PURPOSE.
    """
    spec = plan.spec
    group = spec.nodes[0]
    # Its StatefulSet is named NAME-PURPOSE-worker.
    longest = STATEFULSET_NAME_LIMIT - len(f"-{purpose}-worker")
    measured: Spec = dataclasses.replace(
        spec,
        name=f"{spec.name[:longest].rstrip('-')}-{purpose}",
        nodes=(dataclasses.replace(group, count=workers, spares=0, tuning=_unbound(group.tuning)),),
        tuning=_unbound(spec.tuning),
        train=dataclasses.replace(spec.train, command=tuple(command), retries=0),
        launch=Launch(mode="custom", hosts_timeout_seconds=spec.launch.hosts_timeout_seconds),
    )
    # Measure with the plan's own bindings, but options of horovodrun are not options of mpirun.
    options = plan.launching.options if spec.launch.mode == "mpirun" else ()
    launching = dataclasses.replace(plan.launching, options=options)
    return dataclasses.replace(make_plan(measured), launching=launching)


def _unbound(tuning: Tuning) -> Tuning:
    """`tuning` without a binding, which mode custom takes from the launching of the plan."""
    return dataclasses.replace(tuning, binding=None)
