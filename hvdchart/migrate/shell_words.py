"""Split shell text into statements and words, without running or expanding it. Pure.

A word records a part that only a shell can expand: a variable, a command, arithmetic, a pattern.
Such a part is refused where a line uses it, and never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")
# Words that start more than a simple command.
_COMPOUND = frozenset(
    (
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "select",
        "function",
        "{",
        "}",
        "[[",
        "!",
        "coproc",
    )
)
_SHELL = r"`[^`]*+`|\$\([^()]*+\)|\$\{[^{}]*+\}|\$[\w@*#?!${(-]"
_DOUBLE = rf'"(?>\\.|{_SHELL}|[^"\\`])*+"'
_WORD = rf"(?>'[^']*+'|{_DOUBLE}|{_SHELL}|\\.|[^\s;|&<>()'\"\\`])++"
_TOKEN = re.compile(
    r"(?P<skip>(?>[ \t]|\\\n)++|#[^\n]*+)"
    rf"|(?P<redirect>(?>[0-9]*+|&)(?:>>|>&|>|<<<|<<-?|<&|<)[ \t]*+(?:{_WORD})?+)"
    rf"|(?P<end>\n|&&|\|\||[;|&])|(?P<word>{_WORD})|(?P<parenthesis>[()])",
    re.DOTALL,
)
_VARIABLE = r"\$(?P<name>[A-Za-z_]\w*)|\$\{(?P<braced>[A-Za-z_]\w*)\}"
_PATTERN = r"[*?\[]|^~|\{(?=[^\s{}]*(?:,|\.\.))[^\s{}]*+\}"
_PIECE = re.compile(
    rf"'(?P<single>[^']*)'|(?P<double>{_DOUBLE})|{_VARIABLE}|(?P<shell>{_SHELL}|{_PATTERN})"
    r"|\\(?P<escaped>.)|(?P<text>.)",
    re.DOTALL,
)
_QUOTED_PIECE = re.compile(
    rf"{_VARIABLE}|(?P<shell>{_SHELL})|\\(?P<escaped>[\\\"$`\n])|(?P<text>.)", re.DOTALL
)


@dataclass(frozen=True)
class Word:
    """A word without its quotes; `unknown` is the first part that only a shell can expand."""

    text: str
    unknown: str = ""


@dataclass
class Statement:
    """A simple command: its words, its text as written, and the operator that ends it."""

    line: int
    words: list[Word] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    redirects: list[str] = field(default_factory=list)
    end: str = "\n"
    # The reason why it is more than a simple command, such as the first word of a loop; else empty.
    compound: str = ""

    @property
    def raw(self) -> str:
        """The statement as it is written, on one line."""
        return " ".join([*self.written, *self.redirects])


def read_statements(text: str, known: Mapping[str, str] | None = None) -> list[Statement]:
    """Return the statements of a text. Raises ValueError for a quote that is not closed.

    `known` are variables with their values, which replace $NAME and ${NAME}.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    statements = []
    current = Statement(1)
    at = 0
    line = 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"what begins with {text[at]} in line {line} is not closed")
        at = match.end()
        token = match[0]
        if match["end"]:
            current.end = token
            statements.append(current)
            current = Statement(line)
        elif match["redirect"]:
            current.redirects.append(token)
            if token.lstrip("0123456789&").startswith("<<"):
                current.compound = "<<"
        elif match["parenthesis"]:
            current.compound = current.compound or token
        elif match["word"]:
            if not current.words:
                current.line = line
                current.compound = token if token in _COMPOUND else ""
            current.written.append(token.replace("\\\n", ""))
            current.words.append(_read_word(token, known or {}))
        line += token.count("\n")
    return [each for each in (*statements, current) if each.words or each.redirects]


def _read_word(written: str, known: Mapping[str, str]) -> Word:
    text = ""
    unknown = ""
    for match in _PIECE.finditer(written):
        double = match["double"]
        for piece in [match] if double is None else _QUOTED_PIECE.finditer(double[1:-1]):
            value = _value(piece, known)
            if value is None:
                value = piece[0]
                unknown = unknown or value
            text += value
    return Word(text, unknown)


def _value(piece: re.Match[str], known: Mapping[str, str]) -> str | None:
    """Return the text of a piece; return None if only a shell can expand it."""
    groups = piece.groupdict()
    if name := groups["name"] or groups["braced"]:
        return known.get(name)
    if groups["shell"]:
        return None
    return "" if groups["escaped"] == "\n" else piece[piece.lastgroup or 0]
