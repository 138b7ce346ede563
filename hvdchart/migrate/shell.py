"""Reads shell text as far as it can be known without running it: statements, words, variables.

What only a shell can expand stays as it is written, and its word says so: a command substitution, a
pattern, a variable that nothing sets or whose value depends on a condition. It is refused where a
line uses it, and never guessed. Pure.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

Variables = Mapping[str, str | None]
Known = MutableMapping[str, str | None]
"""Names and values; None is a value that only a shell knows."""

_COMPOUND = frozenset((
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "select", "function", "{", "}", "(", ")", "[[", "((", "!", "coproc",
))  # fmt: skip
NAME = re.compile(r"[A-Za-z_]\w*")
_DEFAULT = re.compile(r"([A-Za-z_]\w*|[0-9]+)(?::?-([^${}`\"']*))?")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_REDIRECT = re.compile(r"(?:[0-9]*|&)(?:>>|>\||>&|<&|<>|<<<|<<-?|>|<)")
_ESCAPED = ("\\", '"', "$", "`", "\n")
_END = re.compile(r"\n|&&|\|\||\|&|;;|[;|&]")
_SKIPPED = re.compile(r"(?:[ \t]|\\\n)+|#[^\n]*")
_LIST = re.compile(r"\{[^\s{}]*(,|\.\.)[^\s{}]*\}")


@dataclass(frozen=True)
class Piece:
    """A part of a word: plain text, a variable with its default, or what only a shell expands."""

    kind: str
    text: str
    quoted: bool = False
    default: str | None = None


@dataclass(frozen=True)
class Word:
    """A word as it is written."""

    pieces: tuple[Piece, ...]
    raw: str


@dataclass
class Statement:
    """A simple command: its words, its redirections, and the operator that ends it."""

    line: int
    words: list[Word] = field(default_factory=list)
    redirects: list[str] = field(default_factory=list)
    end: str = "\n"
    # The first word of a loop, a condition or the like; empty for a simple command.
    compound: str = ""

    @property
    def raw(self) -> str:
        """The statement as it is written, on one line."""
        return " ".join([*(word.raw for word in self.words), *self.redirects])


def read_statements(text: str) -> list[Statement]:
    """The statements of a shell text. Raises ValueError for a quote that is not closed."""
    return list(_Reader(text).statements())


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        self.at = 0

    def statements(self) -> Iterator[Statement]:
        current = Statement(1)
        while self.at < len(self.text):
            if match := _SKIPPED.match(self.text, self.at):
                self.at = match.end()
            elif match := _REDIRECT.match(self.text, self.at):
                self._redirect(current, match)
            elif match := _END.match(self.text, self.at):
                self.at, current.end = match.end(), match[0]
                if current.words or current.redirects:
                    yield current
                current = Statement(self._line(self.at))
            else:
                self._word(current)
        if current.words or current.redirects:
            yield current

    def _line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def _redirect(self, statement: Statement, match: re.Match[str]) -> None:
        self.at = match.end()
        while skipped := _SKIPPED.match(self.text, self.at):
            self.at = skipped.end()
        tuple(self._pieces())
        statement.redirects.append(self.text[match.start() : self.at])
        if match[0].startswith("<<"):
            statement.compound = match[0]

    def _word(self, statement: Statement) -> None:
        start = self.at
        pieces = tuple(self._pieces())
        word = Word(pieces, self.text[start : self.at].replace("\\\n", ""))
        if not statement.words:
            statement.line = self._line(start)
            if word.raw in _COMPOUND or self.text.startswith("()", self.at):
                statement.compound = word.raw
        statement.words.append(word)

    def _pieces(self) -> Iterator[Piece]:
        """The pieces of the word here; a parenthesis that begins no word is one."""
        start = self.at
        while (char := self.text[self.at : self.at + 1]) and char not in " \t\n;|&<>":
            is_first = self.at == start
            if char in "()":
                if is_first:
                    yield self._take("shell", 1)
                return
            if char == "\\":
                if (escaped := self._escaped()).text:
                    yield escaped
            elif char == "'":
                yield Piece("text", self._until("'"), quoted=True)
            elif char == '"':
                yield from self._double_quoted()
            elif char in "$`":
                yield self._expansion(quoted=False)
            elif char in "*?[" or (char == "~" and is_first) or _LIST.match(self.text, self.at):
                yield self._take("shell", 1)
            else:
                yield self._take("text", 1)

    def _take(self, kind: str, length: int, *, quoted: bool = False) -> Piece:
        self.at += length
        return Piece(kind, self.text[self.at - length : self.at], quoted)

    def _escaped(self) -> Piece:
        self.at += 2
        return Piece("text", self.text[self.at - 1 : self.at].replace("\n", ""))

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise ValueError(f"a {quote} in line {self._line(self.at)} is not closed")
        inside = self.text[self.at + 1 : end]
        self.at = end + 1
        return inside

    def _double_quoted(self) -> Iterator[Piece]:
        start = self.at
        self.at += 1
        # Also "" is a word.
        yield Piece("text", "", quoted=True)
        while char := self.text[self.at : self.at + 1]:
            if char == '"':
                self.at += 1
                return
            if char in "$`":
                yield self._expansion(quoted=True)
            elif char == "\\" and self.text[self.at + 1 : self.at + 2] in _ESCAPED:
                yield self._escaped()
            else:
                yield self._take("text", 1, quoted=True)
        raise ValueError(f'a " in line {self._line(start)} is not closed')

    def _expansion(self, *, quoted: bool) -> Piece:
        start = self.at
        if self.text[start] == "`":
            return Piece("shell", f"`{self._until('`')}`", quoted)
        if name := NAME.match(self.text, start + 1):
            self.at = name.end()
            return Piece("variable", name[0], quoted)
        opening = self.text[start + 1 : start + 2]
        if opening not in ("{", "("):
            # $1, $?, $'...' and a lone $.
            is_alone = not opening or opening in " \n\t\"';|&<>"
            kind = "text" if is_alone and opening != "'" else "shell"
            return self._take(kind, 1 if is_alone else 2, quoted=quoted)
        raw = self._balanced(opening)
        default = _DEFAULT.fullmatch(raw[2:-1]) if opening == "{" else None
        if default:
            return Piece("variable", default[1], quoted, default[2])
        return Piece("shell", raw, quoted)

    def _balanced(self, opening: str) -> str:
        start, depth, closing = self.at, 0, ")" if opening == "(" else "}"
        for at in range(start + 1, len(self.text)):
            depth += (self.text[at] == opening) - (self.text[at] == closing)
            if depth == 0:
                self.at = at + 1
                return self.text[start : self.at]
        raise ValueError(f"${opening} in line {self._line(start)} is not closed")


_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_LARGEST = 10**12


@dataclass(frozen=True)
class Text:
    """A word after the expansion; `unknown` is the first part that only a shell can expand."""

    text: str
    unknown: str = ""


def expand(words: Sequence[Word], variables: Variables) -> list[Text]:
    """The words with the variables' values; an unquoted value is split at its spaces."""
    return [text for word in words for text in _expand_word(word, variables)]


def names_in(words: Sequence[Word]) -> set[str]:
    """The names of the variables in some words."""
    pieces = (piece for word in words for piece in word.pieces if piece.kind != "text")
    return {name for piece in pieces for name in NAME.findall(piece.text)}


def _expand_word(word: Word, variables: Variables) -> Iterator[Text]:
    current, unknown, begun = "", "", False
    for piece in word.pieces:
        value = _value(piece, variables)
        if value is None:
            current, unknown, begun = current + _raw(piece), unknown or _raw(piece), True
        elif piece.quoted or piece.kind == "text":
            current, begun = current + value, True
        else:
            fields = re.split(r"\s+", value)
            for number, part in enumerate(fields):
                if number and (current or begun):
                    yield Text(current, unknown)
                    current, unknown, begun = "", "", False
                current, begun = current + part, begun or bool(part)
    if begun:
        yield Text(current, unknown)


def _value(piece: Piece, variables: Variables) -> str | None:
    if piece.kind == "text":
        return piece.text
    if piece.kind == "variable":
        value = variables.get(piece.text, piece.default)
        return piece.default if piece.default and value == "" else value
    return calculate(piece.text[3:-2], variables) if piece.text.startswith("$((") else None


def _raw(piece: Piece) -> str:
    if piece.kind != "variable":
        return piece.text
    return f"${{{piece.text}:-{piece.default}}}" if piece.default is not None else f"${piece.text}"


def calculate(expression: str, variables: Variables) -> str | None:
    """The value of $((expression)); None when it is not plain arithmetic of known whole numbers."""
    text = re.sub(r"\$\{(\w+)\}|\$(\w+)", r"\1\2", expression).replace("/", "//").strip()
    if len(text) > 200:
        return None
    try:
        number = _number(ast.parse(text, mode="eval").body, variables)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return str(number)


def _number(node: ast.expr, variables: Variables) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value < _LARGEST:
        return node.value
    if isinstance(node, ast.Name) and (variables.get(node.id) or "").isdecimal():
        return int(variables[node.id] or "")
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _number(node.left, variables), _number(node.right, variables)
        number = _ARITHMETIC[type(node.op)](left, right)
        if 0 <= number < _LARGEST:
            return number
    raise ValueError(ast.dump(node))


_DECLARES = frozenset(("declare", "typeset", "local", "readonly"))
# Builtins that set variables to values which the text does not have, or which they calculate.
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


def follow_builtin(program: str, statement: Statement, variables: Known) -> bool:
    """Follow a builtin of the shell that sets or removes variables; False for another program."""
    words = statement.words[1:]
    # All of these builtins take quoted words, too.
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


def is_export(program: str, statement: Statement) -> bool:
    """Whether a statement gives variables to programs: export, or declare -x."""
    return program == "export" or (program in _DECLARES and "x" in _options(statement))


def declare(statement: Statement, variables: Known) -> list[str]:
    """Set the variables of export, declare and the like, and return their names."""
    # Other options calculate a number, change the letters, or take the variable back.
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


def find_conditional(statements: Sequence[Statement]) -> Iterator[bool]:
    """Whether each statement runs only if one before it, joined by && or ||, ends in some way."""
    before, is_doubtful = None, False
    for statement in statements:
        if before is None or before.end not in ("&&", "||"):
            is_doubtful = False
        else:
            first = before.words[0].raw if before.words else ""
            succeeds = first in _SUCCEEDS or ASSIGNMENT.match(first) is not None
            is_doubtful |= before.end == "||" or not succeeds
        yield is_doubtful
        before = statement
