"""The options and variables of launchers, and which options a spec may give to which.

All of it is in the chart's files/hvd_pods/common/launcher_options.json, which the templates and the pods read too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hvdchart.chart_files import read_data
from hvdchart.quantity import MI
from hvdchart.spec.model import Spec
from hvdchart.spec.paths import KeyPath

# An argument of a custom command that stands for mpirun's command line.
LAUNCH = "$(LAUNCH)"


@dataclass(frozen=True)
class Option:
    """An option of launchers. `arguments` is how many follow it.

    `launchers` are the ids of those that have it; None: nothing is refused. `value` names the
    chart's values that set the same, `binding` is "binds", "maps" or empty, and `interface` is true
    for an option that names network interfaces.
    """

    arguments: int
    launchers: frozenset[str] | None
    value: str
    binding: str
    interface: bool


@functools.cache
def _options() -> Mapping[str, Option]:
    return {
        name: Option(
            arguments=entry["arguments"],
            launchers=frozenset(entry["readBy"]) if "readBy" in entry else None,
            value=entry.get("value", ""),
            binding=entry.get("binding", ""),
            interface=entry.get("interface", False),
        )
        for entry in read_data("launcher_options.json")["options"]
        for name in entry["names"]
    }


def option_name(argument: str) -> str:
    """The name in -name, --name or --name=value; empty for an argument that is not an option."""
    return argument.lstrip("-").partition("=")[0] if argument.startswith("-") else ""


def find_option(argument: str) -> Option | None:
    """The option in an argument of launch.options; None for a value or an unknown option."""
    return _options().get(option_name(argument))


def given_options(arguments: Iterable[str]) -> Iterator[tuple[int, Option]]:
    """The known options among `arguments`, with their index.

    What follows an option as its argument is no option, even when it looks like one: in
    `--mca plm_rsh_args -q` the last word is for ssh.
    """
    values = 0
    for index, argument in enumerate(arguments):
        if values:
            values -= 1
            continue
        option = find_option(argument)
        if option is not None:
            values = 0 if "=" in argument else option.arguments
            yield index, option


def interface_variables(interface: str, transport: str) -> dict[str, str]:
    """The variables that name a group's network interface to its ranks and their daemons."""
    return {
        variable["name"]: interface
        for variable in read_data("launcher_options.json")["interfaceVariables"]
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
    beside = Beside(
        f"tuning.binding is {binding}" if binding else "",
        f"the groups' interface is {interface}" if interface else "",
    )
    for index, problem, expected in find_option_problems(
        spec.launch.mode, spec.launch.options, beside
    ):
        yield ("launch", "options", index), problem, expected


@dataclass(frozen=True)
class Beside:
    """What options may contradict, as a message names it; empty where it is not given."""

    binding: str
    interface: str


def find_option_problems(
    mode: str, arguments: Sequence[str], beside: Beside
) -> Iterator[tuple[int, str, str]]:
    """What the chart refuses in a list of options: the index, the problem, what is expected."""
    modes: Mapping[str, Sequence[str]] = read_data("launcher_options.json")["modes"]
    launchers = set(modes[mode])
    for index, option in given_options(arguments):
        subject = f"option {option_name(arguments[index])!r}"
        if option.value:
            expected = "no such option: nodes and launch set it"
            yield index, f"{subject}, but the chart sets {option.value}", expected
        if option.launchers is not None:
            others = [name for name, ids in modes.items() if option.launchers.intersection(ids)]
            if mode not in others:
                problem = f"{subject}, which the launcher of launch.mode {mode} does not have"
                yield index, problem, f"no such option, or launch.mode {' or '.join(others)}"
            launchers &= option.launchers
            if not launchers:
                problem = f"{subject}, and no MPI has both it and the options before it"
                yield index, problem, "options of the image's MPI only"
        if option.interface and beside.interface:
            yield index, f"{subject}, but {beside.interface}", "one of the two"
        if option.binding and beside.binding:
            expected = "one of the two (binding none leaves it to the options)"
            yield index, f"{subject}, but {beside.binding}", expected


def launcher_memory(mode: str, ranks: int) -> int:
    """The bytes that the master needs for SSH clients that the launcher keeps open; 0 where the
    number of ranks does not change it.
    """
    known = read_data("launcher_options.json")["connections"]
    if mode not in known["perRank"]:
        return 0
    return int(known["baseMebibytes"] + known["clientMebibytes"] * ranks) * MI
