"""Reads shell text as far as it can be known without running it: statements, words, variables.

What only a shell can expand stays as it is written, and its word says so: a command, arithmetic, a
pattern, a variable that nothing sets or whose value depends on a condition. It is refused where a
line uses it, and never guessed. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

Variables = Mapping[str, str | None]
"""Names and values; None is a value that only a shell knows."""

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
NAME = re.compile(r"[A-Za-z_]\w*")
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
# Commands and expressions, which may have parentheses and braces in them.
_PARENTHESES = r"\((?>[^()]++|\((?>[^()]++|\([^()]*+\))*+\))*+\)"
_SHELL = rf"`[^`]*+`|\${_PARENTHESES}|\$\{{(?>[^{{}}]++|\{{[^{{}}]*+\}})*+\}}"
_DOUBLE = rf'"(?>\\.|{_SHELL}|\$(?![({{])|[^"\\$`])*+"'
_WORD = rf"(?>'[^']*+'|{_DOUBLE}|{_SHELL}|\\.|\$(?![({{])|[^ \t\n;|&<>()'\"\\$`])++"
_TOKEN = re.compile(
    r"(?P<skip>(?:[ \t]|\\\n)++|#[^\n]*+)"
    rf"|(?P<redirect>(?:[0-9]*+|&)(?:>>|>\||>&|<&|<>|<<<|<<-?|>|<)[ \t]*+(?:{_WORD})?+)"
    rf"|(?P<end>\n|&&|\|\||\|&|;;|[;|&])|(?P<parenthesis>[()])|(?P<word>{_WORD})",
    re.DOTALL,
)
_VARIABLE = (
    r"\$(?P<name>[A-Za-z_]\w*)"
    r"|\$\{(?P<braced>[A-Za-z_]\w*|[0-9]+)(?::?-(?P<default>[^${}`\"']*))?\}"
)
_PIECE = re.compile(
    rf"'(?P<single>[^']*)'|(?P<double>{_DOUBLE})|{_VARIABLE}"
    rf"|(?P<shell>{_SHELL}|\$\S|[*?\[]|^~|\{{(?=[^\s{{}}]*(?:,|\.\.))[^\s{{}}]*+\}})"
    r"|\\(?P<escaped>.)|(?P<text>.)",
    re.DOTALL,
)
_QUOTED_PIECE = re.compile(
    rf"{_VARIABLE}|(?P<shell>{_SHELL}|\$\S)|\\(?P<escaped>[\\\"$`\n])|(?P<text>.)", re.DOTALL
)


@dataclass
class Statement:
    """A simple command: its words and redirections as written, and the operator that ends it."""

    line: int
    words: list[str] = field(default_factory=list)
    redirects: list[str] = field(default_factory=list)
    end: str = "\n"
    # What makes it more than a simple command, such as the first word of a loop; else empty.
    compound: str = ""

    @property
    def raw(self) -> str:
        """The statement as it is written, on one line."""
        return " ".join([*self.words, *self.redirects])


def read_statements(text: str) -> list[Statement]:
    """The statements of a shell text. Raises ValueError for a quote that is not closed."""
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
            current.words.append(token.replace("\\\n", ""))
        line += token.count("\n")
    return [each for each in (*statements, current) if each.words or each.redirects]


@dataclass(frozen=True)
class Text:
    """A word after the expansion; `unknown` is the first part that only a shell can expand."""

    text: str
    unknown: str = ""


def expand(words: Sequence[str], variables: Variables) -> list[Text]:
    """The words with the variables' values; an unquoted value is split at its spaces."""
    return [text for word in words for text in _expand_word(word, variables)]


def defaults_in(words: Sequence[str], variables: Variables) -> Iterator[tuple[str, str]]:
    """The variables in some words whose default counts, as in ${NAME:-default}."""
    for match in re.finditer(_VARIABLE, " ".join(words)):
        if match["default"] is not None and not variables.get(match["braced"]):
            yield match["braced"], match["default"]


def _expand_word(word: str, variables: Variables) -> Iterator[Text]:
    current = ""
    unknown = ""
    begun = False
    for match in _PIECE.finditer(word):
        double = match["double"]
        begun = begun or double is not None
        for piece in [match] if double is None else _QUOTED_PIECE.finditer(double[1:-1]):
            value = _value(piece, variables)
            if value is None:
                value = piece[0]
                unknown = unknown or piece[0]
                begun = True
            elif double is None and piece[0].startswith("$"):
                value, *fields = re.split(r"\s+", value)
                for part in fields:
                    if begun or current + value:
                        yield Text(current + value, unknown)
                    current = ""
                    unknown = ""
                    begun = False
                    value = part
                begun = begun or bool(value)
            else:
                begun = True
            current += value
    if begun:
        yield Text(current, unknown)


def _value(piece: re.Match[str], variables: Variables) -> str | None:
    groups = piece.groupdict()
    if name := groups["name"] or groups["braced"]:
        value = variables.get(name, groups["default"])
        return groups["default"] if value == "" and groups["default"] else value
    if groups["shell"]:
        return None
    return "" if groups["escaped"] == "\n" else piece[piece.lastgroup or 0]


def assign(words: Sequence[str], variables: MutableMapping[str, str | None]) -> list[str]:
    """Set the variables of words such as NAME=VALUE and NAME+=VALUE; returns their names.

    A word that is a name alone sets nothing, as in export NAME.
    """
    names = []
    for written in words:
        # "NAME=VALUE" is NAME="VALUE".
        word = re.sub(r"^([\"'])([A-Za-z_]\w*\+?=)", r"\2\1", written)
        match = ASSIGNMENT.match(word)
        names.append(match[1] if match else word)
        if match is None:
            continue
        texts = expand([word[match.end() :]], variables)
        value: str | None = " ".join(text.text for text in texts)
        # The variable may come from the environment.
        before = variables.get(match[1]) if match[2] else ""
        if before is None or any(text.unknown for text in texts):
            value = None
        variables[match[1]] = None if value is None else f"{before}{value}"
    return names
