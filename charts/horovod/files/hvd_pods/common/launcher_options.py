"""What launchers know and set: launcher_options.json, which the chart and hvdchart read too."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from hvd_pods.common import fast_start

if TYPE_CHECKING:
    from hvd_pods.common.run import Run

LAUNCHER_OPTIONS: dict[str, Any] = json.loads(
    fast_start.read(os.path.join(os.path.dirname(__file__), "launcher_options.json"))
)
KNOWLEDGE = LAUNCHER_OPTIONS
_OPTIONS = {name: option for option in LAUNCHER_OPTIONS["options"] for name in option["names"]}


def option_name(argument: str) -> str:
    """The name in -name, --name or --name=value; empty for an argument that is not an option."""
    return argument.lstrip("-").partition("=")[0] if argument.startswith("-") else ""


def find_option(argument: str) -> dict[str, Any]:
    """The entry of the option in an argument; empty for a value and for an unknown option."""
    option: dict[str, Any] = _OPTIONS.get(option_name(argument), {})
    return option


def given_options(arguments: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each known option among the arguments of a launcher: its index, and its entry.

    What follows an option as its argument is no option, even when it looks like one: in
    `--mca plm_rsh_args -q` the last word is for ssh.
    """
    values = 0
    for index, argument in enumerate(arguments):
        if values:
            values -= 1
            continue
        option = find_option(argument)
        if option:
            values = 0 if "=" in argument else option["arguments"]
            yield index, option


def find_conflicts(
    arguments: Sequence[str], launchers: Sequence[str], *, binding: bool, interface: bool
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The options that a launch must not have: index, the reason, and the option's entry.

    `launchers` are the ids of those that may start it. The reasons: "value", the chart sets the
    same; "launcher", none of the launchers has it; "together", none has it and those before it;
    "interface" and "binding", it is given although the chart names an interface or binds ranks.
    """
    left = set(launchers)
    for index, option in given_options(arguments):
        if "value" in option:
            yield index, "value", option
        having = set(option.get("readBy", launchers))
        left &= having
        if not having.intersection(launchers):
            yield index, "launcher", option
        elif not left:
            yield index, "together", option
        if "interface" in option and interface:
            yield index, "interface", option
        if "binding" in option and binding:
            yield index, "binding", option


def check_options(run: Run, launcher: str) -> None:
    """Check launch.options for a launcher, named by its id. Raises ConfigurationError.

    The chart refuses most of this when it is rendered, but only the pod knows the image's MPI,
    whose own error would not say where the option comes from.
    """
    # Ranks need what launchers know, and do without the settings of the run.
    from hvd_pods.common.errors import ConfigurationError

    bound, interface = run.binding.to != "none", bool(run.interface)
    problems = find_conflicts(run.options, [launcher], binding=bound, interface=interface)
    for index, reason, option in problems:
        problem = {
            "value": f"the chart sets that from {option.get('value')}: remove it from "
            "launch.options",
            "launcher": f"{LAUNCHER_OPTIONS['launchers'][launcher]}, the launcher of this image, "
            "does not have that option: use an option of that launcher, or launch.binding, "
            "network.interface and network.transport, which work with every launcher",
            "interface": f"network.interface is {run.interface}: give one of the two",
            "binding": f"launch.binding.to is {run.binding.to}: give one of the two",
        }[reason]
        raise ConfigurationError(f"launch.options has {run.options[index]}, but {problem}")


def master_interface_variables(interface: str, default: str) -> dict[str, str]:
    """The master's variables for network.interface, and for its default route's interface.

    Either may be empty: the first where the user names none, the second where there is no route.
    """
    variables = {}
    for variable in LAUNCHER_OPTIONS["interfaceVariables"]:
        chosen = interface or (default if variable.get("always") else "")
        if "master" in variable["setOn"] and chosen:
            variables[variable["name"]] = chosen
    return variables
