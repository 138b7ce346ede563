"""Parse the line of a launcher: mode, options, training command, workers and slots. Pure.

One parser reads the lines of all launchers. Their options are data: hvd_pods' launcher_options.json
and launchers.json, and spec/horovodrun.json. Every option becomes an export, or a part that
names the new key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from hvd_pods.shared.launcher_options import LAUNCHER_OPTIONS, option_name
from hvdchart.migrate.hide_values import hide_values
from hvdchart.migrate.line_size import LineSize, NotUnderstoodError, read_count, read_hosts
from hvdchart.migrate.shell_words import as_written, refuse_unknown, unwrap_shell
from hvdchart.spec import horovodrun
from hvdchart.spec.horovodrun import (
    HorovodrunError,
    LauncherOption,
    UnknownOptionError,
    horovodrun_options,
    take_option,
)
from hvdchart.spec.launchers import nested_launcher

# The launchers that an MPIJob or the old chart may have started.
MPI_LAUNCHERS = ("mpirun", "mpiexec", horovodrun.NAME)
SRUN = "srun"
LAUNCHERS = (*MPI_LAUNCHERS, SRUN, "torchrun")
WORKER_MINIMUM = "worker.minimum"
_LAUNCH_OPTIONS = "launch.options"
_TABLES: dict[str, Any] = json.loads(Path(__file__).with_name("launchers.json").read_text("utf-8"))
# Those that read -p22 as -p 22. In Open MPI, -xterm is an option.
_GLUED = (horovodrun.NAME, SRUN)
# Folders that every PATH has.
_IN_PATH = ("/bin", "/usr/bin", "/usr/local/bin")
_OPEN_MPI = frozenset(("openmpi4", "openmpi5"))
_TORCH_RUN = "torch.distributed.run"
# Programs that run a command in an image of their own.
_CONTAINERS = ("apptainer", "docker", "enroot", "podman", "shifter", "singularity")
_LONG_OPTION = re.compile(r"--[\w-]+=")
_PPR_NODE = re.compile(r"ppr:([1-9][0-9]{0,6}):node(?::.*)?", re.IGNORECASE)


class Export(NamedTuple):
    """A variable that a line gives to the ranks, by an option such as -x.

    `value` is None if the launcher's own variable has it.
    """

    option: str
    variable: str
    value: str | None


class LinePart(NamedTuple):
    """A part of a line as written, its key in the chart, empty when it is dropped, and why."""

    text: str
    key: str
    reason: str


@dataclass
class LauncherLine:
    """A launcher's line, parsed.

    `launcher` is the program, and `framework` is the framework that it starts, empty when unknown.
    With `exports_all`, the ranks get all variables of the launcher, as with horovodrun. The number
    of workers decides whether a part with the key WORKER_MINIMUM sets it. `checks` lists what to
    check by hand. `custom_reason` says why a line of mode `custom` was not parsed.
    """

    mode: str = "mpirun"
    launcher: str = "mpirun"
    framework: str = ""
    command: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    size: LineSize = field(default_factory=LineSize)
    exports: list[Export] = field(default_factory=list)
    exports_all: bool = False
    parts: list[LinePart] = field(default_factory=list)
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
    texts: Sequence[str], nodes: int, per_node: int, variables: Mapping[str, str]
) -> LauncherLine:
    """Parse the command of equal pods: a launcher's line, or one rank on each.

    `variables` are the variables that a shell would know. Raises NotUnderstoodError.
    """
    named = {PurePosixPath(part).name for text in texts for part in text.split()}
    if named.intersection((*LAUNCHERS, _TORCH_RUN)):
        words = list(unwrap_shell(texts, variables))
        if PurePosixPath(words[0]).name.startswith("python") and words[1:3] == ["-m", _TORCH_RUN]:
            words[:3] = ["torchrun"]
        if PurePosixPath(words[0]).name in LAUNCHERS:
            return parse_line(words, nodes=nodes, per_node=per_node)
    if nested := nested_launcher(texts):
        raise NotUnderstoodError(f"{nested[0]} starts ranks itself: write the line of torchrun")
    return LauncherLine("direct", texts[0], "torch", list(texts))


def parse_line(
    words: Sequence[str], launchers: Sequence[str] = LAUNCHERS, nodes: int = 1, per_node: int = 1
) -> LauncherLine:
    """Parse the line of one of `launchers`; torchrun starts `per_node` ranks on each of `nodes`.

    Raises NotUnderstoodError.
    """
    refuse_unknown(words[0])
    launcher = PurePosixPath(words[0]).name
    if launcher not in launchers:
        raise NotUnderstoodError(f"{launcher} is not a launcher that migrate knows")
    mode = "direct" if launcher in (horovodrun.NAME, "torchrun") else "mpirun"
    line = LauncherLine(mode, launcher, exports_all=launcher == horovodrun.NAME)
    if words[0] != launcher:
        _drop_folder(words[0], line)
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] != "--":
        rest = rest[_parse_option(rest, line) :]
    if rest[:1] == ["--"]:
        line.parts.append(LinePart("--", "", "it ends the launcher's options"))
        rest = rest[1:]
    if not rest:
        raise NotUnderstoodError(f"the line gives {launcher} no command to run")
    for word in rest:
        refuse_unknown(word)
    line.command += rest
    _finish(line, nodes, per_node)
    return line


def _drop_folder(program: str, line: LauncherLine) -> None:
    """Drop the folder of the launcher, with a check unless every PATH has it."""
    reason = "the chart starts the program that the image's PATH finds first"
    line.parts.append(LinePart(program, "", reason))
    folder = str(PurePosixPath(program).parent)
    if line.launcher in ("mpirun", "mpiexec") and folder not in _IN_PATH:
        line.checks.append(
            f"the launcher was {program}: here it is the {line.launcher} that the image's PATH "
            "finds first; check that this is the same"
        )


def _parse_option(words: Sequence[str], line: LauncherLine) -> int:
    """Add the first option of a line; return its number of words. Raises NotUnderstoodError."""
    options = _options(line.launcher)
    if line.launcher == SRUN:
        # Only letters have one dash: Slurm reads -nodes=2 as -n odes=2.
        is_long = words[0].startswith("--")
        options = {name: entry for name, entry in options.items() if (len(name) > 1) == is_long}
    try:
        is_glued = line.launcher in _GLUED
        option = take_option(words, 0, options, line.launcher, is_glued=is_glued)
        _add_option(option, line)
    except UnknownOptionError as error:
        if line.launcher == SRUN:
            return _drop_slurm_option(words[0], line)
        raise NotUnderstoodError(as_written(error.problem), error.instead) from None
    except HorovodrunError as error:
        raise NotUnderstoodError(as_written(error.problem), error.instead) from None
    return len(option.words)


def _drop_slurm_option(word: str, line: LauncherLine) -> int:
    """Drop an option for Slurm itself; return its number of words. Raises NotUnderstoodError.

    Only an option with its value in the same word is surely followed by another option.
    """
    if not _LONG_OPTION.match(word) or option_name(word) in _options(SRUN):
        problem = f"{as_written(word)} of srun is not an option that migrate knows"
        raise NotUnderstoodError(problem, "the line without it, or --name=VALUE")
    line.parts.append(LinePart(hide_values(as_written(word)), "", "an option for Slurm"))
    return 1


def _size_with(size: LineSize, option: LauncherOption, value: str) -> LineSize:
    """Return the size of a run with what an option says of it, if it does."""
    name = option.name.lstrip("-")
    if "sets" in option.entry:
        return _read_size(size, option)
    if name == "pernode":
        return size.set_size("per_host", 1)
    if name == "map-by" and (match := _PPR_NODE.fullmatch(value)):
        return size.set_size("per_host", int(match[1]))
    return size


def _add_option(option: LauncherOption, line: LauncherLine) -> None:
    """Add an option to a line. Raises NotUnderstoodError or HorovodrunError."""
    entry = option.entry
    if "needless" not in entry:
        refuse_unknown(str(option))
    value = next(iter(horovodrun.read_values(option)), "")
    line.size = _size_with(line.size, option, value)
    if option.name.lstrip("-") == "mpi":
        line.mode = "mpirun"
    if "check" in entry and entry.get("ifHas", "") in value:
        line.checks.append(entry["check"].format(value))
    if export := _export_of(option, value):
        _add_export(line, export)
        return
    part = _part_of(option, value, line.launcher)
    line.parts.append(part)
    if part.key == _LAUNCH_OPTIONS:
        line.options += option.words


def _export_of(option: LauncherOption, value: str) -> Export | None:
    """Return the variable that an option with this value gives to the ranks, if it gives one."""
    entry = option.entry
    if "variable" in entry:
        return Export(option.name, entry["variable"], horovodrun.read_content(entry, [value]))
    if "exports" in entry:
        variable, equals, content = value.partition("=")
        return Export(option.name, variable, content if equals else None)
    return None


def _part_of(option: LauncherOption, value: str, launcher: str) -> LinePart:
    """Return what becomes of an option without a variable. Raises NotUnderstoodError."""
    entry = option.entry
    text = option.name if "secret" in entry else as_written(str(option))
    if option.name.endswith("mca"):
        reason = _TABLES["mca"].get(value, "")
    else:
        reason = str(entry.get("migrate") or horovodrun.explain_left_out(entry))
    if reason:
        sets_minimum = "sets" in entry and _read_size(LineSize(), option).has_minimum
        return LinePart(text, WORKER_MINIMUM if sets_minimum else "", reason)
    if "instead" in entry:
        raise NotUnderstoodError(f"{text} of {launcher}: use {entry['instead']}")
    return LinePart(text, _LAUNCH_OPTIONS, "unchanged")


def _add_export(line: LauncherLine, export: Export) -> None:
    """Add a variable for the ranks. Raises NotUnderstoodError when it has another value."""
    if not export.variable:
        raise NotUnderstoodError(f"{export.option} names no variable")
    values = {
        earlier.value for earlier in (*line.exports, export) if earlier.variable == export.variable
    }
    if len(values - {None}) > 1:
        raise NotUnderstoodError(f"the line sets {export.variable} to two values")
    line.exports.append(export)


def _read_size(size: LineSize, option: LauncherOption) -> LineSize:
    """Return the size with the number or the list of an option. Raises NotUnderstoodError."""
    sets = option.entry["sets"]
    (value,) = option.values
    if sets in ("host_file", "discovery"):
        return size.set_size(sets, value)
    if sets == "hosts":
        return size.set_size(sets, read_hosts(option.name, value))
    least = ""
    if "nnodes" in option.entry["names"]:
        # MINIMUM:MAXIMUM, or one number.
        least, _, value = value.rpartition(":")
    number = read_count(option.name, value)
    if least:
        size = size.set_size("min_workers", read_count(option.name, least))
        if int(least) > number:
            raise NotUnderstoodError(f"{option.name}: {least} is more than {number}")
    return size.set_size(sets, number)


def _finish(line: LauncherLine, nodes: int, per_node: int) -> None:
    """Add what follows from all of a line. Raises NotUnderstoodError."""
    if ":" in line.command and line.launcher in MPI_LAUNCHERS:
        raise NotUnderstoodError("the line starts several programs, separated by a colon")
    program = PurePosixPath(line.command[0]).name
    if program in _CONTAINERS:
        problem = f"{line.launcher} starts {program}, which runs the command in another image"
        raise NotUnderstoodError(problem, "the command itself, and its image in image.repository")
    if nested := nested_launcher(line.command):
        program = nested[0]
        alone = f"the line of {program} alone, with all nodes and ranks"
        expected = alone if program in LAUNCHERS else "the ranks' command in its place"
        raise NotUnderstoodError(f"{line.launcher} starts {program}", expected)
    if line.launcher == "torchrun":
        _finish_torchrun(line, nodes, per_node)
    elif line.launcher == horovodrun.NAME and line.mode == "direct" and not _used_gloo(line):
        line.checks.append(
            "horovodrun without --gloo used MPI where Horovod had it, and launch.mode direct is "
            "Horovod over Gloo: for MPI set launch.mode to mpirun"
        )


def _used_gloo(line: LauncherLine) -> bool:
    """Return whether a line of horovodrun surely used Gloo, without which no run is elastic."""
    is_elastic = line.size.min_ranks or line.size.discovery
    return bool(is_elastic) or any(part.text == "--gloo" for part in line.parts)


def _finish_torchrun(line: LauncherLine, nodes: int, per_node: int) -> None:
    """Set the size and the ranks' command of a line of torchrun, which starts Python itself."""
    size = line.size
    per_node = size.per_host or per_node
    line.size = replace(size, nodes=None, ranks=(size.nodes or nodes) * per_node, per_host=per_node)
    line.framework = "torch"
    options = {part.text.replace("_", "-") for part in line.parts}
    if "--no-python" not in options:
        is_module = not options.isdisjoint(("-m", "--module"))
        line.command[:0] = ["python3", "-m"] if is_module else ["python3"]
