"""Parses a line of horovodrun, Horovod's launcher; mode `direct` starts its command.

launcher_options.json lists the options of horovodrun, and how the chart handles each.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple, Sequence

from hvd_pods.common.launcher_options import LAUNCHER_OPTIONS, option_name

NAME = "horovodrun"
_BY_NAME: dict[str, dict[str, Any]] = {
    name: option for option in LAUNCHER_OPTIONS[NAME] for name in option["names"]
}


class HorovodrunError(Exception):
    """An invalid word of a line: its index, the problem, and what to use instead."""

    def __init__(self, index: int, problem: str, instead: str) -> None:
        super().__init__(f"{problem}; use instead: {instead}")
        self.index = index
        self.problem = problem
        self.instead = instead


class Line(NamedTuple):
    """A line of horovodrun: the command of each rank, and the options' content.

    `variables` are for the ranks. `ranks` is their number, None if the line does not specify it.
    `left_out` lists the options that have no effect here, each with the reason.
    """

    command: list[str]
    variables: dict[str, str]
    ranks: int | None
    left_out: list[tuple[str, str]]


def is_line(command: Sequence[str]) -> bool:
    """Whether a command is a line of horovodrun; the chart's templates use the same rule."""
    return bool(command) and command[0].rstrip("/").rpartition("/")[2] == NAME


class Option(NamedTuple):
    """An option of a line: its entry in the table, and its words, name and values as written."""

    entry: dict[str, Any]
    name: str
    words: Sequence[str]
    values: Sequence[str]

    def __str__(self) -> str:
        return " ".join(self.words)


def take_option(words: Sequence[str], index: int = 0) -> Option:
    """Return the option that begins at `index`. Raises HorovodrunError for an unknown one."""
    word = words[index]
    name, equals, value = word.partition("=")
    has_value = bool(equals)
    entry = _BY_NAME.get(option_name(word), {})
    by_letter = _BY_NAME.get(word[1:2], {})
    if not entry and not word.startswith("--") and by_letter.get("arguments") == 1:
        # argparse reads -p22 as -p 22.
        entry = by_letter
        name = word[:2]
        has_value = True
        value = word[2:]
    if not entry:
        rest = "the ranks' command alone, or `launch.mode: custom` for the launcher itself"
        raise HorovodrunError(index, f"the option {word} of {NAME} is not known", rest)
    given = words[index : index + (1 if has_value else 1 + entry["arguments"])]
    values = [value] if has_value else given[1:]
    if len(values) != entry["arguments"]:
        form = " ".join([name, *["VALUE"] * entry["arguments"]])
        raise HorovodrunError(index, f"{' '.join(given)} is no option of {NAME}", form)
    return Option(entry, name, given, values)


def read_values(option: Option, index: int = 0) -> list[str]:
    """Return the values of an option, in the form in which horovodrun writes them into variables.

    Raises HorovodrunError for a value that horovodrun refuses.
    """
    try:
        return [_read_value(option.entry, value) for value in option.values]
    except ValueError:
        problem = f"the option {option} has a wrong value"
        raise HorovodrunError(index, problem, _describe_values(option.entry)) from None


def _read_value(entry: dict[str, Any], value: str) -> str:
    """Raises ValueError."""
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
    what = {"int": "a whole number", "float": "a number"}.get(entry.get("type", ""), "a value")
    if "most" in entry:
        return f"{what} from {entry['least']} to {entry['most']}"
    return f"{what} from {entry['least']} on" if "least" in entry else what


def read_content(entry: dict[str, Any], values: Sequence[str]) -> str:
    """Return the content of the variable that an option with these values sets."""
    return str(entry["content"] if "content" in entry else values[0])


def explain_left_out(entry: dict[str, Any]) -> str:
    """Explain why an option has no effect here; empty for one that has an effect."""
    value = entry.get("value")
    return f"the chart takes it from {value}" if value else str(entry.get("needless", ""))


def read_line(words: Sequence[str]) -> Line:
    """Read a line of horovodrun. Raises HorovodrunError."""
    line = Line([], {}, None, [])
    index = 1
    while index < len(words) and words[index].startswith("-") and words[index] != "--":
        option = take_option(words, index)
        entry = option.entry
        if "instead" in entry:
            problem = f"the option {words[index]} of {NAME} does nothing here"
            raise HorovodrunError(index, problem, entry["instead"])
        values = read_values(option, index)
        if "variable" in entry:
            line.variables[entry["variable"]] = read_content(entry, values)
        else:
            line.left_out.append((str(option), explain_left_out(entry)))
        if "np" in entry["names"]:
            line = line._replace(ranks=int(values[0]))
        index += len(option.words)
    index += words[index : index + 1] == ["--"]
    if index >= len(words):
        form = f"{NAME}, its options, and the command of a rank"
        raise HorovodrunError(0, f"the line gives {NAME} no command", form)
    return line._replace(command=list(words[index:]))
