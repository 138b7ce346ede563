"""Parse the line of a launcher: mode, options, training command, workers and slots. Pure.

One parser reads the lines of all launchers. Their options are data: hvd_pods' launcher_options.json
and launchers.json, and spec/horovodrun.json. Every option becomes an export, or a part that
names the new key.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from hvd_pods.shared.launcher_options import LAUNCHER_OPTIONS, option_name
from hvdchart.migrate.line_size import LineSize, NotUnderstoodError, read_count, read_hosts
from hvdchart.spec import horovodrun
from hvdchart.spec.horovodrun import (
    HorovodrunError,
    Option,
    UnknownOptionError,
    horovodrun_options,
    take_option,
)
from hvdchart.spec.launchers import nested_launcher
from hvdchart.spec.yaml_tree import shorten

# The launchers that an MPIJob or the old chart may have started.
MPI_LAUNCHERS = ("mpirun", "mpiexec", horovodrun.NAME)
LAUNCHERS = (*MPI_LAUNCHERS, "srun", "torchrun")
WORKER_MINIMUM = "worker.minimum"
_TABLES: dict[str, Any] = json.loads(Path(__file__).with_name("launchers.json").read_text("utf-8"))
# Those that read -p22 as -p 22. In Open MPI, -xterm is an option.
_GLUED = (horovodrun.NAME, "srun")
# Folders that every PATH has.
_IN_PATH = ("/bin", "/usr/bin", "/usr/local/bin")
_OPEN_MPI = frozenset(("openmpi4", "openmpi5"))
_TORCH_RUN = "torch.distributed.run"
# Programs that run a command in an image of their own.
_CONTAINERS = ("apptainer", "docker", "enroot", "podman", "shifter", "singularity")
_SHELLS = frozenset(("sh", "bash", "dash", "ash"))
_PPR_NODE = re.compile(r"ppr:([1-9][0-9]{0,6}):node(?::.*)?", re.IGNORECASE)
_LONG = re.compile(r"--[\w-]+=")
_NEEDS_SHELL = "the line needs a shell before the launcher starts"
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_VARIABLE = re.compile(r"'[^']*'|\\.|\$(\w+|\{\w+\})")
_EXPANSION = re.compile(r"\$\([^)]*\)?|\$\{[^}]*\}?|\$\S?|`[^`]*`?")
# A variable whose value only a shell knows: this character stands for its dollar.
_DOLLAR = "\0"
_UNKNOWN = re.compile(rf"{_DOLLAR}(\w+|\{{\w+\}})")
# What a shell does not pass on to a program: operators, patterns and comments.
_OPERATOR = re.compile(r"\n|&&|\|\||[;|&<>(){}*?\[\]~]|(?<!\S)#")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


@dataclass
class LauncherLine:
    """A launcher's line, parsed.

    `launcher` is the program, and `framework` is the framework that it starts, empty when unknown.
    `exports` are options such as -x as written, each with its variable and its value, or None. With
    `exports_all`, the ranks get all variables of the launcher, as with horovodrun. `parts` are
    words of the line, each with its key in the chart, empty when dropped, and the reason. The
    number of workers decides whether a part with the key WORKER_MINIMUM sets it. `checks` lists
    what to check by hand. `custom_reason` says why a line of mode `custom` was not parsed.
    """

    mode: str = "mpirun"
    launcher: str = "mpirun"
    framework: str = ""
    command: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    size: LineSize = field(default_factory=LineSize)
    exports: list[tuple[str, str, str | None]] = field(default_factory=list)
    exports_all: bool = False
    parts: list[tuple[str, str, str]] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    custom_reason: str = ""


@cache
def _options(launcher: str) -> dict[str, dict[str, Any]]:
    """Return the options of a launcher by name."""
    if launcher == horovodrun.NAME:
        return horovodrun_options()
    is_mpi = launcher in MPI_LAUNCHERS
    table: dict[str, dict[str, Any]] = {}
    for entry in LAUNCHER_OPTIONS["options"] if is_mpi else ():
        if not _OPEN_MPI.isdisjoint(entry.get("readBy", _OPEN_MPI)):
            table |= dict.fromkeys(entry["names"], entry)
    for entry in _TABLES["mpirun" if is_mpi else launcher]:
        for name in entry["names"]:
            spellings = {name, name.replace("-", "_")} if launcher == "torchrun" else {name}
            table |= {key: {**table.get(name, {}), **entry} for key in spellings}
    return table


def parse_or_keep(words: Sequence[str]) -> LauncherLine:
    """Parse a line of MPI or horovodrun; if it is not understood, return it with mode `custom`."""
    try:
        return parse_line(unwrap_shell(words), MPI_LAUNCHERS)
    except NotUnderstoodError as error:
        return LauncherLine("custom", command=list(words), custom_reason=str(error))


def parse_container(
    texts: Sequence[str], nodes: int, each: int, known: Mapping[str, str]
) -> LauncherLine:
    """Parse the command of equal pods: a launcher's line, or one rank on each.

    `known` are the variables that a shell would know. Raises NotUnderstoodError.
    """
    named = {PurePosixPath(part).name for text in texts for part in text.split()}
    if named.intersection((*LAUNCHERS, _TORCH_RUN)):
        words = list(unwrap_shell(texts, known))
        if PurePosixPath(words[0]).name.startswith("python") and words[1:3] == ["-m", _TORCH_RUN]:
            words[:3] = ["torchrun"]
        if PurePosixPath(words[0]).name in LAUNCHERS:
            return parse_line(words, nodes=nodes, each=each)
    if nested := nested_launcher(texts):
        raise NotUnderstoodError(f"{nested[0]} starts ranks itself: write the line of torchrun")
    return LauncherLine("direct", texts[0], "torch", list(texts))


def parse_line(
    words: Sequence[str], launchers: Sequence[str] = LAUNCHERS, nodes: int = 1, each: int = 1
) -> LauncherLine:
    """Parse the line of one of `launchers`; torchrun starts `each` ranks on each of `nodes`.

    Raises NotUnderstoodError.
    """
    _refuse_unknown(words[0])
    launcher = PurePosixPath(words[0]).name
    if launcher not in launchers:
        raise NotUnderstoodError(f"{launcher} is not a launcher that migrate knows")
    mode = "direct" if launcher in (horovodrun.NAME, "torchrun") else "mpirun"
    line = LauncherLine(mode, launcher, exports_all=launcher == horovodrun.NAME)
    if words[0] != launcher:
        reason = "the chart starts the program that the image's PATH finds first"
        line.parts.append((words[0], "", reason))
        folder = str(PurePosixPath(words[0]).parent)
        if launcher in ("mpirun", "mpiexec") and folder not in _IN_PATH:
            line.checks.append(
                f"the launcher was {words[0]}: here it is the {launcher} that the image's PATH "
                "finds first; check that this is the same"
            )
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] != "--":
        rest = rest[_parse_option(rest, line) :]
    if rest[:1] == ["--"]:
        line.parts.append(("--", "", "it ends the launcher's options"))
        rest = rest[1:]
    if not rest:
        raise NotUnderstoodError(f"the line gives {launcher} no command to run")
    for word in rest:
        _refuse_unknown(word)
    line.command += rest
    _finish(line, nodes, each)
    return line


def _parse_option(words: Sequence[str], line: LauncherLine) -> int:
    """Add the first option of a line; return its number of words. Raises NotUnderstoodError."""
    options = _options(line.launcher)
    if line.launcher == "srun" and option_name(words[0]) not in options and _LONG.match(words[0]):
        line.parts.append((words[0].replace(_DOLLAR, "$"), "", "an option for Slurm"))
        return 1
    try:
        option = _take(words, line.launcher)
        _add_option(option, line)
    except HorovodrunError as error:
        expected = (
            "the line without it, or --name=VALUE" if line.launcher == "srun" else error.instead
        )
        raise NotUnderstoodError(error.problem.replace(_DOLLAR, "$"), expected) from None
    return len(option.words)


def _take(words: Sequence[str], launcher: str) -> Option:
    """Return the first option of a launcher's line. Raises HorovodrunError."""
    options = _options(launcher)
    if launcher == "srun":
        # Only letters have one dash: Slurm reads -nodes=2 as -n odes=2.
        is_long = words[0].startswith("--")
        options = {name: entry for name, entry in options.items() if (len(name) > 1) == is_long}
    return take_option(words, 0, options, launcher, glued=launcher in _GLUED)


def _size_with(size: LineSize, option: Option, value: str) -> LineSize:
    """Return the size of a run with what an option says of it, if it does."""
    name = option.name.lstrip("-")
    if "sets" in option.entry:
        return read_size(size, option)
    if name == "pernode":
        return size.with_size("per_host", 1)
    if name == "map-by" and (each := _PPR_NODE.fullmatch(value)):
        return size.with_size("per_host", int(each[1]))
    return size


def _add_option(option: Option, line: LauncherLine) -> None:
    """Add an option to a line. Raises NotUnderstoodError or HorovodrunError."""
    entry = option.entry
    text = option.name if "secret" in entry else str(option).replace(_DOLLAR, "$")
    name = option.name.lstrip("-")
    reason = str(entry.get("migrate") or horovodrun.explain_left_out(entry))
    if "needless" not in entry:
        _refuse_unknown(str(option))
    values = horovodrun.read_values(option)
    value = values[0] if values else ""
    new = ""
    if "sets" in entry and read_size(LineSize(), option).has_minimum:
        new = WORKER_MINIMUM
    line.size = _size_with(line.size, option, value)
    if name.endswith("mca"):
        reason = _TABLES["mca"].get(value, "")
    elif name == "mpi":
        line.mode = "mpirun"
    if "check" in entry and entry.get("ifHas", "") in value:
        line.checks.append(entry["check"].format(value))
    if "variable" in entry:
        content = horovodrun.read_content(entry, values)
        _add_export(line, option.name, entry["variable"], content)
    elif "exports" in entry:
        variable, has_value, content = value.partition("=")
        _add_export(line, option.name, variable, content if has_value else None)
    elif "instead" in entry and not reason:
        raise NotUnderstoodError(f"{text} of {line.launcher}: use {entry['instead']}")
    elif reason:
        line.parts.append((text, new, reason))
    else:
        line.options += option.words
        line.parts.append((text, "launch.options", "unchanged"))


def _add_export(line: LauncherLine, option: str, variable: str, value: str | None) -> None:
    """Add a variable for the ranks. Raises NotUnderstoodError when it has another value."""
    others = {other for _, name, other in line.exports if name == variable}
    if not variable:
        raise NotUnderstoodError(f"{option} names no variable")
    if value is not None and others - {value, None}:
        raise NotUnderstoodError(f"the line sets {variable} to two values")
    line.exports.append((option, variable, value))


def read_size(size: LineSize, option: Option) -> LineSize:
    """Return the size with the number or the list of an option. Raises NotUnderstoodError."""
    sets = option.entry["sets"]
    (value,) = option.values
    if sets in ("host_file", "discovery"):
        return size.with_size(sets, value)
    if sets == "hosts":
        return size.with_size(sets, read_hosts(option.name, value))
    least = ""
    if "nnodes" in option.entry["names"]:
        # MINIMUM:MAXIMUM, or one number.
        least, _, value = value.rpartition(":")
    number = read_count(option.name, value)
    if least:
        size = size.with_size("min_workers", read_count(option.name, least))
        if int(least) > number:
            raise NotUnderstoodError(f"{option.name}: {least} is more than {number}")
    return size.with_size(sets, number)


def read_slurm_options(words: Sequence[str], size: LineSize) -> LineSize:
    """Return the size changed by options of Slurm, the last of which wins, as for sbatch.

    Raises NotUnderstoodError for a value that is missing or no number, such as the range 2-4.
    """
    while words:
        try:
            option = _take(words, "srun") if words[0].startswith("-") else None
        except UnknownOptionError:
            option = None
        except HorovodrunError as error:
            raise NotUnderstoodError(error.problem) from None
        if option and "sets" in option.entry:
            size = replace(size, **read_size(LineSize(), option).given)
        words = words[len(option.words) if option else 1 :]
    return size


def _finish(line: LauncherLine, nodes: int, each: int) -> None:
    """Add what follows from all of a line. Raises NotUnderstoodError."""
    size = line.size
    gloo = any(part[0] == "--gloo" for part in line.parts) or size.min_ranks or size.discovery
    if ":" in line.command and line.launcher in MPI_LAUNCHERS:
        raise NotUnderstoodError("the line starts several programs, separated by a colon")
    program = PurePosixPath(line.command[0]).name
    if program in _CONTAINERS:
        problem = f"{line.launcher} starts {program}, which runs the command in another image"
        expected = "the command in it alone; its image is image.repository and image.tag"
        raise NotUnderstoodError(problem, expected)
    if nested := nested_launcher(line.command):
        program = nested[0]
        alone = f"the line of {program} alone, with all nodes and ranks"
        expected = alone if program in LAUNCHERS else "the ranks' command in its place"
        raise NotUnderstoodError(f"{line.launcher} starts {program}", expected)
    if line.launcher == horovodrun.NAME and line.mode == "direct" and not gloo:
        line.checks.append(
            "horovodrun without --gloo used MPI where Horovod had it, and launch.mode direct is "
            "Horovod over Gloo: for MPI set launch.mode to mpirun"
        )
    elif line.launcher == "srun":
        line.checks.append(
            "the ranks of srun start with mpirun: set launch.mode to direct for an image without "
            "MPI"
        )
    elif line.launcher == "torchrun":
        each = size.per_host or each
        line.size = replace(size, nodes=None, ranks=(size.nodes or nodes) * each, per_host=each)
        line.framework = "torch"
        given = {part[0].replace("_", "-") for part in line.parts}
        if "--no-python" not in given:
            line.command[:0] = (
                ["python3"] if given.isdisjoint(("-m", "--module")) else ["python3", "-m"]
            )


def split_line(text: str, known: Mapping[str, str] | None = None) -> list[str]:
    """Return the words of one command, with the values of known variables.

    Raises NotUnderstoodError for a line of which a shell changes more than quotes and variables.
    """

    def replace_variable(found: re.Match[str]) -> str:
        name = found[1] or ""
        return (known or {}).get(name.strip("{}"), f"{_DOLLAR}{name}") if name else found[0]

    text = _VARIABLE.sub(replace_variable, text.replace("\\\n", "").strip())
    # A shell expands nothing between single quotes.
    expanded = _QUOTED.sub(lambda found: found[0] if found[0].startswith('"') else "", text)
    _refuse_unknown(expanded, _EXPANSION)
    if found := _OPERATOR.search(_QUOTED.sub("", _UNKNOWN.sub("", text))):
        raise NotUnderstoodError(
            f"{found[0].strip() or 'a line break'} needs a shell",
            "the launcher's line alone, without other commands, redirections and patterns",
        )
    try:
        return shlex.split(text)
    except ValueError as error:
        is_quote = "quotation" in str(error)
        problem = "a quote is not closed" if is_quote else "a space follows the last backslash"
        raise NotUnderstoodError(problem, "the complete line") from None


def _refuse_unknown(text: str, pattern: re.Pattern[str] = _UNKNOWN) -> None:
    """Raise NotUnderstoodError for a text with a variable that only a shell knows."""
    if found := pattern.search(text):
        problem = f"only a shell knows {shorten(found[0].replace(_DOLLAR, '$'))}"
        raise NotUnderstoodError(problem, "its value in its place")


def unwrap_shell(words: Sequence[str], known: Mapping[str, str] | None = None) -> Sequence[str]:
    """Return the launcher's words, with the values of known variables.

    Raises NotUnderstoodError for a shell that does more than start one program.
    """
    text = words[0] if len(words) == 1 and " " in words[0] else ""
    if len(words) == 3 and PurePosixPath(words[0]).name in _SHELLS:
        if not re.fullmatch("-[a-z]*c", words[1]):
            raise NotUnderstoodError(_NEEDS_SHELL)
        text = words[2]
    if not text and words:
        return words
    only = split_line(text, known)
    if not only or _ASSIGNMENT.match(only[0]):
        raise NotUnderstoodError(_NEEDS_SHELL)
    return only
