"""Reads the line of Horovod's launcher, whose command mode `direct` starts itself.

launcher_options.json has the options of horovodrun, and what becomes of each.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from hvd_pods.common.launcher_options import LAUNCHER_OPTIONS, option_name

NAME = "horovodrun"
_BY_NAME: dict[str, dict[str, Any]] = {
    name: option for option in LAUNCHER_OPTIONS[NAME] for name in option["names"]
}


class HorovodrunError(Exception):
    """A word that is refused: its index, what is wrong with it, and what to use."""

    def __init__(self, index: int, problem: str, instead: str) -> None:
        super().__init__(f"{problem}; use instead: {instead}")
        self.index = index
        self.problem = problem
        self.instead = instead


class Line(NamedTuple):
    """A line of horovodrun: the command of each rank, and what the options say.

    `variables` are for the ranks, and `ranks` is their number, None where the line does not say it.
    `left_out` has the options that need nothing, each with the reason.
    """

    command: list[str]
    variables: dict[str, str]
    ranks: int | None
    left_out: list[tuple[str, str]]


def is_line(command: Sequence[str]) -> bool:
    """Whether a command is a line of horovodrun."""
    return bool(command) and command[0].rpartition("/")[2] == NAME


def find_option(argument: str) -> dict[str, Any]:
    """The entry of the option in an argument; empty for a value and for an unknown option."""
    return _BY_NAME.get(option_name(argument), {})


def read_variable(option: dict[str, Any], value: str) -> str:
    """The content of the variable that an option sets. Raises ValueError for a wrong number."""
    if "factor" in option:
        return str(int(value) * option["factor"])
    return str(option.get("content", value))


def explain_left_out(option: dict[str, Any]) -> str:
    """Why an option needs nothing here; empty for one that does."""
    value = option.get("value")
    return f"the chart takes it from {value}" if value else str(option.get("needless", ""))


def read_line(words: Sequence[str]) -> Line:
    """Read a line of horovodrun. Raises HorovodrunError."""
    line = Line([], {}, None, [])
    index = 1
    while index < len(words) and words[index].startswith("-") and words[index] != "--":
        word = words[index]
        option = find_option(word)
        (_, has_value, value) = word.partition("=")
        if not option:
            rest = "the ranks' command alone, or launch.mode custom for the launcher itself"
            raise HorovodrunError(index, f"the option {word} of horovodrun is not known", rest)
        if "instead" in option:
            problem = f"the option {word} of horovodrun does nothing here"
            raise HorovodrunError(index, problem, option["instead"])
        width = 1 if has_value else 1 + option["arguments"]
        given = words[index : index + width]
        if len(given) < width or (has_value and option["arguments"] != 1):
            number = f"{option['arguments']} words after it"
            raise HorovodrunError(index, f"the option {word} lacks its argument", number)
        value = value if has_value else "".join(given[1:2])
        try:
            line = _take(line, option, given, value)
        except ValueError:
            problem = f"the option {' '.join(given)} has no whole number"
            raise HorovodrunError(index, problem, "a whole number") from None
        index += width
    index += words[index : index + 1] == ["--"]
    if index >= len(words):
        raise HorovodrunError(0, "the line gives horovodrun no command", "a command behind it")
    return line._replace(command=list(words[index:]))


def _take(line: Line, option: dict[str, Any], given: Sequence[str], value: str) -> Line:
    """The line with an option. Raises ValueError for a wrong number."""
    reason = explain_left_out(option)
    if reason:
        line.left_out.append((" ".join(given), reason))
    else:
        line.variables[option["variable"]] = read_variable(option, value)
    return line._replace(ranks=int(value)) if "np" in option["names"] else line
