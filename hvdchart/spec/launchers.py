"""The launcher options that a spec may set, and the requirements of launchers.

The pods' hvd_pods.shared.launcher_options describes launchers, their options and variables.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from hvd_pods.shared.launcher_options import (
    LAUNCHER_OPTIONS,
    connection_memory,
    find_conflicts,
    option_name,
)
from hvdchart.quantity import MI
from hvdchart.spec.model import Spec
from hvdchart.spec.paths import KeyPath

# Modules that start ranks, for `python -m`.
_LAUNCHER_MODULES = re.compile(
    r"torch\.distributed\.(run|launch)|horovod\.runner(\.launch)?|deepspeed\.launcher\.\w+"
    r"|accelerate\.commands\.(launch|accelerate_cli)"
)
_PYTHON = re.compile(r"python[0-9.]*")
_SHELL = re.compile(r"(ba|da|z|k)?sh")
# A word that sets a variable for a command.
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
# Options of env whose value is the next word.
_ENV_OPTIONS_WITH_VALUE = ("-u", "--unset", "-C", "--chdir")
# A program in the arguments of a launcher: launchers of several MPIs have many different options.
_PROGRAM = re.compile(r"(.*/)?python[0-9.]*|[^-=][^=]*\.(py|sh)")
# Options of Python before a script or a module. W and X have an argument, in the same or the next
# word.
_PYTHON_FLAGS = re.compile(r"-[bBdEiIOPqRsSuvx]+|-[WX].*|--[a-z].*")
_PYTHON_MODULE = re.compile(r"-[bBdEiIOPqRsSuvx]*m")


def interface_variables(interface: str, transport: str) -> dict[str, str]:
    """Return the variables that set a group's network interface for its ranks and their daemons.

    `transport` is network.transport, or empty: some variables would contradict it.
    """
    return {
        variable["name"]: interface
        for variable in LAUNCHER_OPTIONS["interfaceVariables"]
        if {"workers", "groups"} & set(variable["setOn"])
        and variable.get("unlessTransport") != transport
    }


def common_interface(spec: Spec) -> str | None:
    """Return the interface that all groups name; None when they differ or name none."""
    names = {group.interface for group in spec.nodes}
    return names.pop() if len(names) == 1 else None


def check_options(spec: Spec) -> Iterator[tuple[KeyPath, str, str]]:
    """Find problems that every pod would refuse in mpirun's options: path, problem, expectation.

    A pod refuses more options: it knows the MPI of its image (ADR 28).
    """
    bindings = (spec.tuning.binding, *(group.tuning.binding for group in spec.nodes))
    binding = next((value for value in bindings if value not in (None, "none")), None)
    arguments = spec.launch.options
    launchers = LAUNCHER_OPTIONS["modes"]["mpirun"]
    for index, reason, option in find_conflicts(arguments, launchers, binding=bool(binding)):
        problem, expected = {
            "value": (
                f", but the chart sets {option.get('value')}: remove it",
                "`nodes` and `launch` to set it",
            ),
            "together": (
                ", and no MPI has both it and the options before it",
                "options of the image's MPI only",
            ),
            "binding": (
                f", but `tuning.binding` is {binding}",
                "one of the two (binding none leaves it to the options)",
            ),
        }[reason]
        problem = f"option {option_name(arguments[index])!r}{problem}"
        yield ("launch", "options", index), problem, expected


def launcher_memory(mode: str, workers: int) -> int:
    """Return the master's memory in bytes for the launcher's agent connections, one per worker.

    It is 0 in mode `direct`, which has no process for an agent connection.
    """
    return 0 if mode == "direct" else connection_memory(workers) * MI


def nested_launcher(command: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the launcher in a command, and the command that it starts in each rank.

    The latter is empty if it is not certain. Returns None for a command that is no launcher. In a
    shell's command line (`sh -c`), each command is checked.
    """
    words = skip_env(command)
    while words and (words[0] == "exec" or ASSIGNMENT.fullmatch(words[0])):
        words = skip_env(words[1:])
    if not words:
        return None
    name = PurePosixPath(words[0]).name
    if _SHELL.fullmatch(name) and len(words) > 2 and re.fullmatch("-[a-z]*c", words[1]):
        launchers = map(nested_launcher, _shell_commands(words[2]))
        return next((launcher for launcher in launchers if launcher), None)
    started = words[1:]
    if _PYTHON.fullmatch(name):
        while started and _PYTHON_FLAGS.fullmatch(started[0]):
            started = started[2 if started[0] in ("-W", "-X") else 1 :]
        if len(started) < 2 or not _PYTHON_MODULE.fullmatch(started[0]):
            # A launcher may be a script of Python.
            return nested_launcher(started)
        name = started[1]
        is_launcher = bool(_LAUNCHER_MODULES.fullmatch(name))
        started = started[2:]
    elif name == "accelerate":
        is_launcher = words[1:2] == ["launch"]
        started = words[2:]
    else:
        is_launcher = name in LAUNCHER_OPTIONS["programs"]
    return (name, _started_program(started)) if is_launcher else None


def skip_env(command: Sequence[str]) -> list[str]:
    """Return the command that env starts; any other command stays unchanged."""
    words = list(command)
    while words and PurePosixPath(words[0]).name == "env":
        words = words[1:]
        # For env, unlike for a shell, the name of a variable may have any characters.
        while words and (words[0].startswith("-") or "=" in words[0]):
            words = words[2 if words[0] in _ENV_OPTIONS_WITH_VALUE else 1 :]
    return words


def _started_program(arguments: Sequence[str]) -> list[str]:
    """Return the program in a launcher's arguments, with its arguments; empty if not found."""
    for index, word in enumerate(arguments):
        # Some launchers also take these options, and start Python themselves.
        if word in ("-m", "--module") and index + 1 < len(arguments):
            return ["python", "-m", *arguments[index + 1 :]]
        if _PROGRAM.fullmatch(word):
            started = list(arguments[index:])
            return ["python", *started] if word.endswith(".py") else started
    return []


def _shell_commands(text: str) -> Iterator[list[str]]:
    """Yield the simple commands of a shell's command line; none if it cannot be split."""
    lexer = shlex.shlex(text.replace("\n", ";"), posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    command: list[str] = []
    try:
        for word in lexer:
            if set(word) <= set(";&|()"):
                yield command
                command = []
            else:
                command.append(word)
    except ValueError:
        return
    yield command
