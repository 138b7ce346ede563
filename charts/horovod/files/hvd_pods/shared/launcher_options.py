"""The options and variables of launchers: launcher_options.json, which the templates also read."""

from __future__ import annotations

import json
import os

from hvd_pods.shared import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

# An argument of a custom command that stands for the complete command line of mpirun.
LAUNCH = "$(LAUNCH)"
LAUNCHER_OPTIONS: dict[str, Any] = json.loads(
    files.read(os.path.join(os.path.dirname(__file__), "launcher_options.json"))
)
_BY_NAME: dict[str, dict[str, Any]] = {
    name: option for option in LAUNCHER_OPTIONS["options"] for name in option["names"]
}


def option_name(argument: str) -> str:
    """Return the name in -name, --name or --name=value; empty for an argument that is no option."""
    return argument.lstrip("-").partition("=")[0] if argument.startswith("-") else ""


def find_option(argument: str) -> dict[str, Any]:
    """Return the entry of the option in an argument; empty for a value or an unknown option."""
    return _BY_NAME.get(option_name(argument), {})


def list_options(arguments: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the known options in a launcher's arguments: the index of each, and its entry.

    An argument of an option is not an option, even if it looks like one: in `--mca plm_rsh_args
    -q`, the last word is for ssh.
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


def tags_output(arguments: Sequence[str]) -> bool:
    """Return whether an option makes the launcher put the rank before each line of the output."""
    return any(option.get("tags") for _, option in list_options(arguments))


def find_conflicts(
    arguments: Sequence[str], launchers: Sequence[str], *, binding: bool
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the options that a launch must not have: index, the reason, and the option's entry.

    `launchers` are the ids of the launchers that may be used. The reasons: "value": the chart sets
    this itself; "launcher": no launcher supports it; "together": no launcher supports it together
    with all earlier options; "binding": the chart already binds the ranks.
    """
    candidates = set(launchers)
    for index, option in list_options(arguments):
        if "value" in option:
            yield index, "value", option
        having = set(option.get("readBy", launchers))
        candidates &= having
        if not having.intersection(launchers):
            yield index, "launcher", option
        elif not candidates:
            yield index, "together", option
        if "binding" in option and binding:
            yield index, "binding", option


def connection_memory(clients: int) -> int:
    """Return the MiB that the master's container needs for this number of concurrent clients.

    launcher_options.json gives the source of its two figures.
    """
    connections = LAUNCHER_OPTIONS["connections"]
    return int(connections["baseMebibytes"] + connections["clientMebibytes"] * clients)
