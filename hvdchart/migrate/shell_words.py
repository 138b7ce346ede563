"""Split a line of a shell into words, with the values of known variables. Pure.

The words of a line say which variables only a shell knows: `refuse_unknown` refuses such a word
where its value matters, and `as_written` returns it for a message.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from hvdchart.migrate.line_size import NotUnderstoodError
from hvdchart.spec.yaml_tree import shorten

_SHELLS = frozenset(("sh", "bash", "dash", "ash"))
_NEEDS_SHELL = "the line needs a shell before the launcher starts"
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_SHELL_VARIABLE = re.compile(r"'[^']*'|\\.|\$(\w+|\{\w+\})")
_EXPANSION = re.compile(r"\$\([^)]*\)?|\$\{[^}]*\}?|\$\S?|`[^`]*`?")
# The dollar of a variable that only a shell knows, in a word: no argument of a program has this
# character, while a quoted dollar is a part of the word.
_UNKNOWN_DOLLAR = "\0"
_UNKNOWN = re.compile(rf"{_UNKNOWN_DOLLAR}(\w+|\{{\w+\}})")
# What a shell does not pass on to a program: operators, patterns and comments.
_OPERATOR = re.compile(r"\n|&&|\|\||[;|&<>(){}*?\[\]~]|(?<!\S)#")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


def as_written(text: str) -> str:
    """Return a word, or a text with words, as the line has it."""
    return text.replace(_UNKNOWN_DOLLAR, "$")


def split_line(text: str, variables: Mapping[str, str] | None = None) -> list[str]:
    """Return the words of one command, with the values of known variables.

    Raises NotUnderstoodError for a line of which a shell changes more than quotes and variables.
    """

    def replace_variable(match: re.Match[str]) -> str:
        name = match[1]
        if not name:
            return match[0]
        return (variables or {}).get(name.strip("{}"), f"{_UNKNOWN_DOLLAR}{name}")

    text = _SHELL_VARIABLE.sub(replace_variable, text.replace("\\\n", "").strip())
    # A shell expands nothing between single quotes.
    expanded = _QUOTED.sub(lambda quoted: quoted[0] if quoted[0].startswith('"') else "", text)
    refuse_unknown(expanded, _EXPANSION)
    if operator := _OPERATOR.search(_QUOTED.sub("", _UNKNOWN.sub("", text))):
        raise NotUnderstoodError(
            f"{operator[0].strip() or 'a line break'} needs a shell",
            "the launcher's line alone, without other commands, redirections and patterns",
        )
    try:
        return shlex.split(text)
    except ValueError as error:
        is_quote = "quotation" in str(error)
        problem = "a quote is not closed" if is_quote else "a space follows the last backslash"
        raise NotUnderstoodError(problem, "the complete line") from None


def refuse_unknown(text: str, pattern: re.Pattern[str] = _UNKNOWN) -> None:
    """Raise NotUnderstoodError for a text with a variable that only a shell knows."""
    if variable := pattern.search(text):
        problem = f"only a shell knows {shorten(as_written(variable[0]))}"
        raise NotUnderstoodError(problem, "its value in its place")


def unwrap_shell(words: Sequence[str], variables: Mapping[str, str] | None = None) -> Sequence[str]:
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
    command = split_line(text, variables)
    if not command or _ASSIGNMENT.match(command[0]):
        raise NotUnderstoodError(_NEEDS_SHELL)
    return command
