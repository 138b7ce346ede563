"""Hide the values of variables in a line of a shell: they may be secrets. Pure."""

from __future__ import annotations

import re

# Parts of a word that may have spaces. One that is not closed goes on to the end of the line.
_ESCAPED = r"\\.?"
_SUBSTITUTION = r"\$\((?:[^()]|\([^()]*\))*\)?|`[^`]*`?|\$\{[^}]*\}?"
_SPACED = "|".join(
    (
        _ESCAPED,
        _SUBSTITUTION,
        rf"\$'(?:{_ESCAPED}|[^'\\])*'?",
        r"'[^']*'?",
        rf"\"(?:{_ESCAPED}|{_SUBSTITUTION}|[^\"\\])*\"?",
        # An array.
        r"(?<==)\([^)]*\)?",
    )
)
_WORD = re.compile(rf"(?:{_SPACED}|[^\s;&|()])+", re.DOTALL)
_ITEM = re.compile(rf"(?:{_SPACED}|[^\s,])+", re.DOTALL)
_ASSIGNED = re.compile(r"(?<![-\w])(\w+\+?=).+", re.DOTALL)


def hide_values(line: str) -> str:
    """Return a line with ... in the place of each value of a variable."""
    return _WORD.sub(lambda word: _hide_in_word(word[0]), line)


def _hide_in_word(word: str) -> str:
    """Return a word of a shell without what follows the name of a variable.

    An option may have a list of variables, as --export of Slurm.
    """
    if word.startswith("-"):
        return _ITEM.sub(lambda item: _ASSIGNED.sub(r"\1...", item[0]), word)
    return _ASSIGNED.sub(r"\1...", word)
