"""Reads a line of horovodrun, Horovod's launcher, which a spec may have as its command.

horovodrun.json lists the options of horovodrun, and what becomes of each.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from hvd_pods.shared.launcher_options import option_name
from hvdchart.quantity import pluralize
from hvdchart.spec import topology
from hvdchart.spec.model import Spec
from hvdchart.spec.paths import KeyPath

NAME = "horovodrun"
_OPTIONS_FILE = Path(__file__).with_name("horovodrun.json")
_AT: KeyPath = ("train", "command")


class HorovodrunError(Exception):
    """An invalid word of a line: its index, the problem, and what to use instead."""

    def __init__(self, index: int, problem: str, instead: str) -> None:
        super().__init__(f"{problem}; use instead: {instead}")
        self.index = index
        self.problem = problem
        self.instead = instead


class UnknownOptionError(HorovodrunError):
    """An option that is not in the table."""


class Line(NamedTuple):
    """A line of horovodrun: the command of each rank, and the variables that the ranks get.

    `ranks` is their number, None if the line does not specify it.
    """

    command: tuple[str, ...]
    variables: dict[str, str]
    ranks: int | None


class LauncherOption(NamedTuple):
    """An option of a line: its entry in the table, and its words, name and values as written."""

    entry: dict[str, Any]
    name: str
    words: Sequence[str]
    values: Sequence[str]

    def __str__(self) -> str:
        return " ".join(self.words)


@cache
def horovodrun_options() -> dict[str, dict[str, Any]]:
    """Return the entries of the table by the names of the options."""
    table: list[dict[str, Any]] = json.loads(_OPTIONS_FILE.read_text("utf-8"))["options"]
    return {name: option for option in table for name in option["names"]}


def take_option(
    words: Sequence[str],
    index: int = 0,
    options: Mapping[str, dict[str, Any]] | None = None,
    program: str = NAME,
    *,
    is_glued: bool = True,
) -> LauncherOption:
    """Return the option that begins at `index`.

    Raises UnknownOptionError, and HorovodrunError for a wrong number of values.

    `options` are those of another program, by name. `is_glued` is whether a letter and its value
    may be one word, as for argparse: -p22 is -p 22.
    """
    table = horovodrun_options() if options is None else options
    word = words[index]
    name, equals, value = word.partition("=")
    has_value = bool(equals)
    entry = table.get(option_name(word), {})
    by_letter = table.get(word[1:2], {})
    if not entry and is_glued and word[:2] != "--" and by_letter.get("arguments") == 1:
        entry = by_letter
        name = word[:2]
        has_value = True
        value = word[2:]
    if not entry:
        rest = (
            "the line without it, the ranks' command alone, or `launch.mode: custom` for the "
            "launcher itself"
        )
        raise UnknownOptionError(index, f"the option {word} of {program} is not known", rest)
    taken = words[index : index + (1 if has_value else 1 + entry["arguments"])]
    values = [value] if has_value else taken[1:]
    if len(values) != entry["arguments"]:
        form = " ".join([name, *["VALUE"] * entry["arguments"]])
        problem = f"{' '.join(taken)} of {program} has {pluralize(len(values), 'value')}"
        raise HorovodrunError(index, problem, form)
    return LauncherOption(entry, name, taken, values)


def read_values(option: LauncherOption, index: int = 0) -> list[str]:
    """Return the values of an option, in the form in which horovodrun writes them into variables.

    Raises HorovodrunError for a value that horovodrun refuses.
    """
    try:
        return [_read_value(option.entry, value) for value in option.values]
    except ValueError:
        problem = f"the option {option} has a wrong value"
        raise HorovodrunError(index, problem, _describe_values(option.entry)) from None


def _read_value(entry: dict[str, Any], value: str) -> str:
    """Return a value as horovodrun writes it into a variable. Raises ValueError."""
    if "type" not in entry:
        # An empty variable is not a setting.
        if value not in entry.get("choices", [value]) or not (value or "variable" not in entry):
            raise ValueError(value)
        return value
    number = int(value) if entry["type"] == "int" else float(value)
    # The condition is false for NaN, too.
    if not entry.get("least", -math.inf) <= number <= entry.get("most", sys.float_info.max):
        raise ValueError(value)
    return str(number * entry.get("factor", 1))


def _describe_values(entry: dict[str, Any]) -> str:
    if "choices" in entry:
        return " or ".join(entry["choices"])
    noun = {"int": "a whole number", "float": "a number"}.get(entry.get("type", ""), "a value")
    if "most" in entry:
        return f"{noun} from {entry['least']} to {entry['most']}"
    return f"{noun} from {entry['least']} on" if "least" in entry else noun


def read_content(entry: dict[str, Any], values: Sequence[str]) -> str:
    """Return the content of the variable that an option with these values sets."""
    return str(entry["content"] if "content" in entry else values[0])


def explain_left_out(entry: dict[str, Any]) -> str:
    """Explain why an option has no effect here; empty for one that has an effect."""
    value = entry.get("value")
    return f"the chart takes it from {value}" if value else str(entry.get("needless", ""))


def read_line(words: Sequence[str]) -> Line:
    """Read a line of horovodrun. Raises HorovodrunError."""
    variables: dict[str, str] = {}
    ranks = None
    index = 1
    while index < len(words) and words[index].startswith("-") and words[index] != "--":
        option = take_option(words, index)
        entry = option.entry
        if "instead" in entry:
            problem = f"the option {words[index]} of {NAME} does nothing here"
            raise HorovodrunError(index, problem, entry["instead"])
        values = read_values(option, index)
        if "variable" in entry:
            variables[entry["variable"]] = read_content(entry, values)
        if "np" in entry["names"]:
            ranks = int(values[0])
        index += len(option.words)
    index += words[index : index + 1] == ["--"]
    if index >= len(words):
        form = f"{NAME}, its options, and the command of a rank"
        raise HorovodrunError(0, f"the line gives {NAME} no command", form)
    return Line(tuple(words[index:]), variables, ranks)


def replace_horovodrun_line(spec: Spec) -> tuple[Spec, list[tuple[KeyPath, str, str]]]:
    """Replace a line of horovodrun in a spec by keys that mean the same; any other spec stays.

    The run starts the ranks' command over Gloo, in mode `direct`, with the line's variables. The
    second value lists what the line contradicts: path, problem, expectation.
    """
    command = spec.train.command
    if spec.launch.mode == "custom" or PurePosixPath(command[0]).name != NAME:
        return spec, []
    try:
        line = read_line(command)
    except HorovodrunError as error:
        return spec, [((*_AT, error.index), error.problem, error.instead)]
    problems: list[tuple[KeyPath, str, str]] = []
    alone = f"the ranks' command alone, without {NAME}, and `launch.mode: mpirun`"
    ranks = sum(topology.workers(group, spec) * topology.slots(group, spec) for group in spec.nodes)
    if line.ranks not in (None, ranks):
        problem = f"the line starts {line.ranks} ranks, and the nodes have {ranks}"
        problems.append((_AT, problem, f"-np {ranks}, or no -np"))
    if spec.train.framework not in (None, "horovod"):
        problem = f"{NAME} starts Horovod, and `train.framework` is {spec.train.framework}"
        problems.append((_AT, problem, "the ranks' command alone, or no `train.framework`"))
    if spec.launch.options:
        problem = f"a line of {NAME} takes no options here"
        problems.append((("launch", "options"), problem, f"no options, or {alone}"))
    train = replace(
        spec.train,
        command=line.command,
        env={**spec.train.env, **line.variables},
        framework="horovod",
    )
    return replace(spec, train=train, launch=replace(spec.launch, mode="direct")), problems
