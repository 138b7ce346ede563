"""Plan runs with another command than the spec's: to measure, or to take calls. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.spec.model import Launch, Spec
from hvdchart.spec.validate import longest_name


def command_plan(plan: Plan, spec: Spec, command: Sequence[str], retries: int) -> Plan:
    """Return the plan with another spec, and a command that starts the ranks itself.

    The chart replaces the command's argument $(LAUNCH) by the launcher's line, for the image's own
    MPI, with the bindings of the plan. `retries` is how often a failed run is retried. Raises
    SpecError where the spec is wrong.
    """
    nodes = [
        dataclasses.replace(group, tuning=dataclasses.replace(group.tuning, binding=None))
        for group in spec.nodes
    ]
    # Mode direct has no options; a custom command contains them.
    options = spec.launch.options if spec.launch.mode == "mpirun" else ()
    timeout = spec.launch.workers_timeout_seconds
    changed = dataclasses.replace(
        spec,
        nodes=tuple(nodes),
        tuning=dataclasses.replace(spec.tuning, binding=plan.launching.binding.to),
        train=dataclasses.replace(spec.train, command=tuple(command), backoff_limit=retries),
        launch=Launch(
            mode="custom",
            options=options,
            workers_timeout_seconds=timeout,
            # The commands of this package report the processes that they start.
            allow_idle_workers=True,
        ),
    )
    return make_plan(changed, plan.tree)


def measuring_plan(plan: Plan, purpose: str, command: Sequence[str], workers: int) -> Plan:
    """Return the plan NAME-PURPOSE: the first group with `workers` workers and another command."""
    # Its StatefulSet is named NAME-PURPOSE-worker.
    longest = longest_name(plan.spec) - len(f"-{purpose}-worker")
    first = dataclasses.replace(plan.spec.nodes[0], count=workers, spares=0, minimum=None)
    name = f"{plan.spec.name[:longest].rstrip('-')}-{purpose}"
    spec = dataclasses.replace(plan.spec, name=name, nodes=(first,))
    return command_plan(plan, spec, command, retries=0)
