"""What launchers know and set: launcher_options.json, which the chart and hvdchart read too."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from hvd_pods.common import fast_start

if TYPE_CHECKING:
    from hvd_pods.common.run import Run

KNOWLEDGE: dict[str, Any] = json.loads(
    fast_start.read(os.path.join(os.path.dirname(__file__), "launcher_options.json"))
)
_OPTIONS = {name: option for option in KNOWLEDGE["options"] for name in option["names"]}


def find_option(argument: str) -> dict[str, Any]:
    """The entry of the option in an argument: -name, --name or --name=value. Empty for others."""
    if not argument.startswith("-"):
        return {}
    option: dict[str, Any] = _OPTIONS.get(argument.lstrip("-").partition("=")[0], {})
    return option


def given_options(arguments: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each known option among the arguments of a launcher, with its entry.

    What follows an option as its argument is no option, even when it looks like one.
    """
    values = 0
    for argument in arguments:
        if values:
            values -= 1
            continue
        option = find_option(argument)
        if option:
            values = 0 if "=" in argument else option["arguments"]
            yield argument, option


def check_options(run: Run, launcher: str) -> None:
    """Check launch.options for a launcher, named by its id. Raises ConfigurationError.

    The chart refuses most of this when it is rendered, but only the pod knows the image's MPI,
    whose own error would not say where the option comes from.
    """
    # Ranks need what launchers know, and do without the settings of the run.
    from hvd_pods.common.errors import ConfigurationError

    for argument, option in given_options(run.options):
        problem = ""
        if "value" in option:
            problem = f"the chart sets that from {option['value']}: remove it from launch.options"
        elif launcher not in option.get("readBy", [launcher]):
            problem = (
                f"{KNOWLEDGE['launchers'][launcher]}, the launcher of this image, does not have "
                "that option: use an option of that launcher, or launch.binding, "
                "network.interface and network.transport, which work with every launcher"
            )
        elif "interface" in option and run.interface:
            problem = f"network.interface is {run.interface}: give one of the two"
        elif "binding" in option and run.binding.to != "none":
            problem = f"launch.binding.to is {run.binding.to}: give one of the two"
        if problem:
            raise ConfigurationError(f"launch.options has {argument}, but {problem}")


def master_interface_variables(interface: str, default: str) -> dict[str, str]:
    """The master's variables for network.interface, and for its default route's interface.

    Either may be empty: the first where the user names none, the second where there is no route.
    """
    variables = {}
    for variable in KNOWLEDGE["interfaceVariables"]:
        chosen = interface or (default if variable.get("always") else "")
        if "master" in variable["setOn"] and chosen:
            variables[variable["name"]] = chosen
    return variables
