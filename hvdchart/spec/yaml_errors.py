"""Says in a reader's words what is broken in a YAML file, and where. Pure.

The parser names tokens and grammar; whoever wrote the file looks for a quote, a bracket or a tab.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_ONE_DOCUMENT = "one YAML document"


@dataclass(frozen=True)
class Broken:
    """What is broken at a place, counted from 1, and what was expected."""

    line: int
    column: int
    problem: str
    expected: str


def describe_error(error: Any) -> Broken:
    """The description of a parser's error that has marks."""
    problem = " ".join((error.problem or error.context or "not YAML").split())
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    start = error.context_mark
    begins = f"{start.line + 1}:{start.column + 1}" if start else ""
    context = error.context or ""
    for pattern, message, expected in _WORDS:
        match = re.search(pattern, f"{context}; {problem}")
        if match:
            words = match.groupdict()
            text = message.format(begins=begins, **words)
            return Broken(line, column, text, expected.format(begins=begins, **words))
    where = f", in what begins at {begins}" if begins and mark != start else ""
    return Broken(line, column, f"broken YAML: {problem}{where}", _ONE_DOCUMENT)


# What the parser says (its context; its problem), what to say instead, and what was expected.
_WORDS = (
    (
        r"quoted scalar; found unexpected end of stream",
        "broken YAML: the text in quotes that begins at {begins} does not end",
        "a closing quote",
    ),
    (
        r"flow (?P<kind>sequence|mapping); expected ',' or '(?P<end>.)', but got",
        "broken YAML: '{end}' or ',' is missing in the brackets that open at {begins}",
        "'{end}' where they close, and ',' between items",
    ),
    (
        r"; mapping values are not allowed here",
        "broken YAML: a ':' where no key can be",
        "one key in a line, indented like the keys beside it; quotes around text with ': '",
    ),
    (r"found character '\\t'", "broken YAML: a tab", "spaces as indentation"),
    (
        r"found character '(?P<sign>.)' that cannot start any token",
        "broken YAML: {sign!r} at the start of a value",
        "quotes around text that starts with it",
    ),
    (
        r"found undefined alias '(?P<name>[^']{1,60})",
        "broken YAML: *{name} refers to an anchor &{name} that is not above it",
        "an anchor, or quotes around text that starts with *",
    ),
    (
        r"expected <block end>, but found",
        "broken YAML: indented unlike the lines before it, from {begins} on",
        "keys of one map, or items of one list, in the same column",
    ),
    (
        r"; but found another document",
        "broken YAML: a second document begins here",
        "one document in a file, without --- between lines",
    ),
    (
        r"could not find expected ':'",
        "broken YAML: the line {begins} is neither a key with its value nor an item of a list",
        "'key: value' or '- item'",
    ),
)
