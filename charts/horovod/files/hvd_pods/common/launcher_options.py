"""What launchers know and set: launcher_options.json, which the chart's templates read, too."""

from __future__ import annotations

import json
import os

from hvd_pods.common import fast_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

LAUNCHER_OPTIONS: dict[str, Any] = json.loads(
    fast_start.read(os.path.join(os.path.dirname(__file__), "launcher_options.json"))
)
_BY_NAME = {name: option for option in LAUNCHER_OPTIONS["options"] for name in option["names"]}


def option_name(argument: str) -> str:
    """The name in -name, --name or --name=value; empty for an argument that is not an option."""
    return argument.lstrip("-").partition("=")[0] if argument.startswith("-") else ""


def find_option(argument: str) -> dict[str, Any] | None:
    """The entry of the option in an argument; None for a value or an unknown option."""
    return _BY_NAME.get(option_name(argument))


def given_options(arguments: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
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
        if option is not None:
            values = 0 if "=" in argument else option["arguments"]
            yield index, option


def connection_memory(clients: int) -> int:
    """The MiB that the master's container needs with this number of SSH clients at a time."""
    known = LAUNCHER_OPTIONS["connections"]
    return int(known["baseMebibytes"] + known["clientMebibytes"] * clients)
