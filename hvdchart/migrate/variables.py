"""The variables of a shell text, as one statement after the other changes them. Runs nothing. Pure.

A variable whose value depends on more than the text, such as on a condition, is one that only a
shell knows: it is refused where a line uses it, and never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence

from hvdchart.migrate.expansion import expand
from hvdchart.migrate.shell import ASSIGNMENT, NAME, Statement, Word

Known = MutableMapping[str, str | None]
"""Names and values; None is a value that only a shell knows."""

_DECLARES = frozenset(("declare", "typeset", "local", "readonly"))
# Those that give values which the text does not have, or calculate them.
_SETS = frozenset(("read", "let", "mapfile", "readarray", "getopts"))
# Commands before && that no script expects to fail.
_SUCCEEDS = frozenset(("cd", "pushd", "mkdir", "export", "set", "echo", "true", ":", "module"))


def assigned_name(word: Word) -> str:
    """The variable that a word such as NAME=VALUE or NAME+=VALUE sets."""
    return word.raw.partition("=")[0].removesuffix("+")


def assign(statement: Statement, variables: Known) -> bool:
    """Set the variables of a statement that only assigns; False for any other statement."""
    if not all(ASSIGNMENT.match(word.raw) for word in statement.words):
        return False
    for word in statement.words:
        _assign(word, variables)
    return True


def _assign(word: Word, variables: Known) -> None:
    name, texts = assigned_name(word), expand([word], variables)
    value: str | None = " ".join(text.text for text in texts).partition("=")[2]
    if any(text.unknown for text in texts):
        value = None
    elif word.raw.startswith(f"{name}+="):
        # The variable may come from the environment.
        before = variables.get(name)
        value = None if before is None else f"{before}{value}"
    variables[name] = value


def change(program: str, statement: Statement, variables: Known) -> bool:
    """Follow a builtin of the shell that sets or removes variables; False for another program."""
    words = statement.words[1:]
    # Each of them takes quoted words, too.
    names = [match[0] for word in words if (match := NAME.match(word.raw.lstrip("\"'")))]
    if program == "unset":
        for name in names:
            variables.pop(name, None)
        return True
    if program in _DECLARES:
        declare(statement, variables)
        return True
    if program == "let":
        names = [name for word in words for name in NAME.findall(word.raw)]
    elif program not in _SETS:
        return False
    variables.update(dict.fromkeys(names))
    return True


def exports(program: str, statement: Statement) -> bool:
    """Whether a statement gives variables to programs: export, or declare -x."""
    return program == "export" or (program in _DECLARES and "x" in _options(statement))


def declare(statement: Statement, variables: Known) -> list[str]:
    """Set the variables of export, declare and the like, and return their names."""
    # Others calculate a number, change the letters, or take the variable back.
    is_plain, names = _options(statement) <= {"x", "r", "g", "p"}, []
    for word in statement.words[1:]:
        match = NAME.match(word.raw.lstrip("\"'"))
        if match is None:
            continue
        names.append(match[0])
        if ASSIGNMENT.match(word.raw):
            _assign(word, variables)
        if not is_plain or word.raw[0] in "\"'":
            variables[match[0]] = None
    return names


def _options(statement: Statement) -> set[str]:
    raw = (word.raw for word in statement.words[1:])
    return {letter for word in raw if word.startswith("-") for letter in word[1:]}


def conditional(statements: Sequence[Statement]) -> Iterator[bool]:
    """Whether each statement runs only if one before it, joined by && or ||, ends in some way."""
    before, is_doubtful = None, False
    for statement in statements:
        if before is None or before.end not in ("&&", "||"):
            is_doubtful = False
        else:
            is_doubtful |= before.end == "||" or not _succeeds(before)
        yield is_doubtful
        before = statement


def _succeeds(statement: Statement) -> bool:
    first = statement.words[0].raw if statement.words else ""
    return first in _SUCCEEDS or ASSIGNMENT.match(first) is not None
