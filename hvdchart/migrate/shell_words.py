"""Split a line of a shell into words, with the values of known variables. Pure.

The words of a line say which variables only a shell knows: `refuse_unknown` refuses such a word
where its value matters, and `as_written` returns it for a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from hvdchart.migrate.line_size import NotUnderstoodError
from hvdchart.spec.launchers import ASSIGNMENT
from hvdchart.spec.yaml_tree import shorten

_SHELLS = frozenset(("sh", "bash", "dash", "ash"))
_NEEDS_SHELL = "the line needs a shell before the launcher starts"
_DOLLAR = (
    r"\$(?P<variable>\w+|\{\w+\})"
    # What only a shell can expand.
    r"|(?P<expansion>\$\([^)]*\)?|\$\{[^}]*\}?|\$\S?|`[^`]*`?)"
)
# The next part of a line outside of double quotes. None begins at a single quote that is not
# closed, or at the last backslash.
_PART = re.compile(
    r"(?P<space>[ \t\r]+)|'(?P<literal>[^']*)'|\\(?P<escaped>.)|(?P<quote>\")"
    # What a shell does not pass on to a program: operators, patterns and comments.
    r"|(?P<operator>\n|&&|\|\||[;|&<>(){}*?\[\]~])|(?P<comment>#)"
    rf"|{_DOLLAR}|(?P<text>[^'\\])",
    re.DOTALL,
)
# The next part between double quotes.
_QUOTED_PART = re.compile(
    rf"\\(?P<escaped>[$`\"\\])|(?P<quote>\")|{_DOLLAR}|(?P<text>.)", re.DOTALL
)
# The dollar of a variable that only a shell knows, in a word: no argument of a program has this
# character, while a quoted dollar is a part of the word.
_UNKNOWN_DOLLAR = "\0"
_UNKNOWN = re.compile(rf"{_UNKNOWN_DOLLAR}(\w+|\{{\w+\}})")


def as_written(text: str) -> str:
    """Return a word, or a text with words, as the line has it."""
    return text.replace(_UNKNOWN_DOLLAR, "$")


def split_line(text: str, variables: Mapping[str, str] | None = None) -> list[str]:
    """Return the words of one command, with the values of known variables.

    Raises NotUnderstoodError for a line of which a shell changes more than quotes and variables.
    """
    values = variables or {}
    words: list[str] = []
    word: str | None = None
    for kind, part in _split_parts(text.replace("\\\n", "").strip()):
        if kind == "space":
            words.append(word or "")
            word = None
        elif kind == "operator" or (kind == "comment" and word is None):
            problem = f"{part.strip() or 'a line break'} needs a shell"
            expected = (
                "the launcher's line alone, without other commands, redirections and patterns"
            )
            raise NotUnderstoodError(problem, expected)
        elif kind == "expansion":
            raise _unknown_error(part)
        elif kind == "variable":
            word = (word or "") + values.get(part.strip("{}"), f"{_UNKNOWN_DOLLAR}{part}")
        else:
            word = (word or "") + part
    return words if word is None else [*words, word]


def _split_parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the content of each part of a line; a quote has no content.

    Raises NotUnderstoodError for a line that ends within quotes or after a backslash.
    """
    expected = "the complete line"
    index = 0
    is_quoted = False
    while part := (_QUOTED_PART if is_quoted else _PART).match(text, index):
        index = part.end()
        kind = part.lastgroup or ""
        is_quoted ^= kind == "quote"
        yield kind, "" if kind == "quote" else part[kind]
    if is_quoted or text[index:].startswith("'"):
        raise NotUnderstoodError("a quote is not closed", expected)
    if index < len(text):
        raise NotUnderstoodError("a space follows the last backslash", expected)


def refuse_unknown(text: str) -> None:
    """Raise NotUnderstoodError for a text with a variable that only a shell knows."""
    if variable := _UNKNOWN.search(text):
        raise _unknown_error(variable[0])


def _unknown_error(variable: str) -> NotUnderstoodError:
    problem = f"only a shell knows {shorten(as_written(variable))}"
    return NotUnderstoodError(problem, "its value in its place")


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
    if not command or ASSIGNMENT.fullmatch(command[0]):
        raise NotUnderstoodError(_NEEDS_SHELL)
    return command
