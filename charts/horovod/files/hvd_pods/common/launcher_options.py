"""What launchers know and set: launcher_options.json, which the chart's templates read, too."""

from __future__ import annotations

import json
import os

from hvd_pods.common import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

# An argument of a custom command that stands for the whole line with which mpirun is started.
LAUNCH = "$(LAUNCH)"
LAUNCHER_OPTIONS: dict[str, Any] = json.loads(
    files.read(os.path.join(os.path.dirname(__file__), "launcher_options.json"))
)
_BY_NAME: dict[str, dict[str, Any]] = {
    name: option for option in LAUNCHER_OPTIONS["options"] for name in option["names"]
}


def option_name(argument: str) -> str:
    """The name in -name, --name or --name=value; empty for an argument that is not an option."""
    return argument.lstrip("-").partition("=")[0] if argument.startswith("-") else ""


def find_option(argument: str) -> dict[str, Any]:
    """The entry of the option in an argument; empty for a value and for an unknown option."""
    return _BY_NAME.get(option_name(argument), {})


def given_options(arguments: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The known options among the arguments of a launcher: the index of each, and its entry.

    What follows an option as its argument is no option, even when it looks like one: in
    `--mca plm_rsh_args -q`, the last word is for ssh.
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
    """Whether one of the options lets the launcher put the rank before each line of the output."""
    return any(option.get("tags") for _, option in given_options(arguments))


def find_conflicts(
    arguments: Sequence[str], launchers: Sequence[str], *, binding: bool
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The options that a launch must not have: index, the reason, and the option's entry.

    `launchers` are the ids of the launchers that may be used. The reasons: "value": the chart sets
    this itself; "launcher": no launcher has it; "together": none has it and all earlier options;
    "binding": the chart already binds the ranks.
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
        if "binding" in option and binding:
            yield index, "binding", option


def connection_memory(clients: int) -> int:
    """The MiB that the master's container needs with this number of clients at a time.

    launcher_options.json has where its two figures come from.
    """
    known = LAUNCHER_OPTIONS["connections"]
    return int(known["baseMebibytes"] + known["clientMebibytes"] * clients)
