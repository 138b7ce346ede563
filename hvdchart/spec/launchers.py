"""Which options of launchers a spec may give, and what launchers need.

The pods' hvd_pods.common.launcher_options describes launchers, their options and variables.
"""

from __future__ import annotations

from collections.abc import Iterator

from hvd_pods.common.launcher_options import (
    LAUNCHER_OPTIONS,
    connection_memory,
    find_conflicts,
    option_name,
)
from hvdchart.quantity import MI
from hvdchart.spec.model import Spec
from hvdchart.spec.paths import KeyPath

# An argument of a custom command that stands for mpirun's command line.
LAUNCH = "$(LAUNCH)"


def interface_variables(interface: str, transport: str) -> dict[str, str]:
    """The variables that name a group's network interface to its ranks and their daemons.

    `transport` is network.transport, or empty: some variables would contradict it.
    """
    return {
        variable["name"]: interface
        for variable in LAUNCHER_OPTIONS["interfaceVariables"]
        if {"workers", "groups"} & set(variable["setOn"])
        and variable.get("unlessTransport") != transport
    }


def common_interface(spec: Spec) -> str | None:
    """The interface that all groups name; None when they differ or name none."""
    names = {group.interface for group in spec.nodes}
    return names.pop() if len(names) == 1 else None


def check_options(spec: Spec) -> Iterator[tuple[KeyPath, str, str]]:
    """What the chart or every pod would refuse in launch.options: path, problem, what is expected.

    A pod refuses more: it knows which MPI its image has.
    """
    interface = common_interface(spec)
    bindings = (spec.tuning.binding, *(group.tuning.binding for group in spec.nodes))
    binding = next((given for given in bindings if given not in (None, "none")), None)
    mode = spec.launch.mode or "mpirun"
    arguments = spec.launch.options
    modes: dict[str, list[str]] = LAUNCHER_OPTIONS["modes"]
    conflicts = find_conflicts(
        arguments, modes[mode], binding=bool(binding), interface=bool(interface)
    )
    for index, reason, option in conflicts:
        having = set(option.get("readBy", ()))
        others = [other for other, launchers in modes.items() if having.intersection(launchers)]
        problem, expected = {
            "value": (
                f", but the chart sets {option.get('value')}: remove it",
                "`nodes` and `launch` to set it",
            ),
            "launcher": (
                f", which the launcher of launch.mode {mode} does not have",
                f"no such option, or launch.mode {' or '.join(others)}",
            ),
            "together": (
                ", and no MPI has both it and the options before it",
                "options of the image's MPI only",
            ),
            "interface": (f", but the groups' interface is {interface}", "one of the two"),
            "binding": (
                f", but tuning.binding is {binding}",
                "one of the two (binding none leaves it to the options)",
            ),
        }[reason]
        problem = f"option {option_name(arguments[index])!r}{problem}"
        yield ("launch", "options", index), problem, expected


def launcher_memory(mode: str, ranks: int, workers: int) -> int:
    """The bytes that the master needs for the sessions that its launcher keeps.

    It keeps one for each rank, or one for each worker. 0 in mode `direct`, which has no process
    for a session.
    """
    if mode == "direct":
        return 0
    per_rank = mode in LAUNCHER_OPTIONS["connections"]["perRank"]
    return connection_memory(ranks if per_rank else workers) * MI
