"""Parses an old launcher's command line into a launch mode, options and the training command. Pure.

Which options there are, and how many arguments follow each: the chart's files/launchers.json.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from hvdchart.spec.launchers import find_option, option_name

_CHARTS_MCA = {
    "orte_keep_fqdn_hostnames": "the chart sets it",
    "plm_rsh_agent": "the chart uses an SSH command of its own",
    "plm_rsh_args": "the chart writes the SSH configuration; the port is ssh.port",
    "plm_rsh_no_tree_spawn": "the chart sets it",
    "plm_rsh_num_concurrent": "the chart sets it",
    "orte_default_hostfile": "the chart writes the host file",
}
_SHELLS = frozenset(("sh", "bash", "dash", "ash"))
# Characters that a shell acts on; quotes are handled separately.
_SHELL_SYNTAX = re.compile(r"[|&;<>()`$\n*?\[\]{}~!#=]")
LAUNCHERS = {"mpirun": "mpirun", "mpiexec": "mpirun", "orterun": "mpirun",
             "horovodrun": "horovodrun"}  # fmt: skip


@dataclass
class CommandLine:
    """A launcher's command line, parsed.

    `ranks` is the number of ranks asked for, None without one; `min_ranks` and `max_ranks` are the
    limits of an elastic run. `exports` are the -x options: a variable's name and the value given
    with it, None without one. `dropped` are pairs of an option and the reason, in their order.
    `custom_reason` says why a line of mode `custom` was not parsed.
    """

    mode: str
    options: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    ranks: int | None = None
    exports: list[tuple[str, str | None]] = field(default_factory=list)
    dropped: list[tuple[str, str]] = field(default_factory=list)
    min_ranks: int | None = None
    max_ranks: int | None = None
    custom_reason: str = ""


def parse_command_line(words: Sequence[str]) -> CommandLine:
    """Parse a command line; mode `custom` and the unchanged words when a part is not understood."""
    unwrapped = _unwrap_shell(words)
    if unwrapped is None:
        return _custom(words, "the line needs a shell before the launcher starts")
    launcher = PurePosixPath(unwrapped[0]).name if unwrapped else ""
    mode = LAUNCHERS.get(launcher)
    if mode is None:
        return _custom(words, f"{launcher or 'an empty line'} is not a launcher that migrate knows")
    line = CommandLine(mode)
    rest = unwrapped[1:]
    while rest and rest[0].startswith("-") and rest[0] != "--":
        width = _parse_option(rest, line)
        if width == 0:
            return _custom(words, f"migrate does not understand option {rest[0]} of {launcher}")
        rest = rest[width:]
    line.command = rest[1:] if rest[:1] == ["--"] else rest
    if not line.command:
        return _custom(words, f"the line gives {launcher} no command to run")
    if ":" in line.command:
        return _custom(words, "the line starts several programs, separated by a colon")
    return line


def _custom(words: Sequence[str], reason: str) -> CommandLine:
    return CommandLine("custom", command=list(words), custom_reason=reason)


def _unwrap_shell(words: Sequence[str]) -> list[str] | None:
    """The launcher's words, from `sh -c LINE` or one string; None when the line needs a shell."""
    if len(words) == 1 and " " in words[0]:
        return _split(words[0])
    if len(words) == 3 and PurePosixPath(words[0]).name in _SHELLS:
        return _split(words[2]) if words[1] in ("-c", "-ec", "-lc", "-exc", "-xc") else None
    return list(words)


def _split(text: str) -> list[str] | None:
    """The words of a line; None when it has shell syntax outside of single quotes."""
    unquoted = re.sub(r"'[^']*'", "''", text.replace("\\\n", " "))
    # NAME=value is an assignment only as the first word.
    first, _, others = unquoted.strip().partition(" ")
    if _SHELL_SYNTAX.search(first + others.replace("=", "")):
        return None
    try:
        return shlex.split(text.replace("\\\n", " "))
    except ValueError:
        return None


def _parse_option(rest: Sequence[str], line: CommandLine) -> int:
    """Add the first option of `rest` to `line`; its number of words, 0 when not understood."""
    name, (_, has_value, value) = option_name(rest[0]), rest[0].partition("=")
    option = find_option(rest[0])
    known = {"openmpi4", "openmpi5"} if line.mode == "mpirun" else {"horovodrun"}
    if option is None or not known & (option.launchers or known):
        return 0
    width = 1 if has_value else 1 + option.arguments
    if len(rest) < width or (has_value and option.arguments != 1):
        return 0
    words = list(rest[:width])
    value = value if has_value else "".join(words[1:2])
    reason = f"the chart takes it from {option.value}" if option.value else _drop_reason(words)
    if option.value == "worker.number and worker.slots":
        if not value.isdecimal():
            return 0
        line.ranks = int(value)
    elif "launch.elastic." in option.value or name == "host-discovery-script":
        if not (value.isdecimal() or name == "host-discovery-script"):
            return 0
        line.mode = "elastic"
        line.min_ranks = int(value) if "minRanks" in option.value else line.min_ranks
        line.max_ranks = int(value) if "maxRanks" in option.value else line.max_ranks
    elif name == "x":
        variable, equals, content = value.partition("=")
        line.exports.append((variable, content if equals else None))
    elif not reason:
        line.options += words
    if reason and "launch.elastic." not in option.value:
        line.dropped.append((" ".join(words), reason))
    return width


def _drop_reason(words: Sequence[str]) -> str:
    """Why the chart needs no such option; empty for an option that goes to launch.options."""
    name = option_name(words[0])
    if name == "allow-run-as-root":
        return "the chart allows mpirun to run as root"
    if name == "mpi":
        return "horovodrun uses MPI by default when Horovod is built with it"
    return _CHARTS_MCA.get(words[1], "") if name.endswith("mca") else ""
