"""Reads shell text: statements, quotes, comments, continued lines. Runs nothing. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_COMPOUND = frozenset((
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "select", "function", "{", "}", "(", ")", "[[", "((", "!", "coproc",
))  # fmt: skip
NAME = re.compile(r"[A-Za-z_]\w*")
_DEFAULT = re.compile(r"([A-Za-z_]\w*)(?::?-([^${}`\"']*))?")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_REDIRECT = re.compile(r"(?:[0-9]*|&)(?:>>|>\||>&|<&|<>|<<<|<<-?|>|<)")
_ESCAPED = ("\\", '"', "$", "`", "\n")
_ENDS = ("&&", "||", "|&", ";;", ";", "|", "&")


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
    # Text that is no simple command, such as a loop; empty for one that is.
    compound: str = ""

    @property
    def raw(self) -> str:
        """The statement as it is written, on one line."""
        return " ".join([*(word.raw for word in self.words), *self.redirects])


def read_statements(text: str) -> list[Statement]:
    """The statements of a shell text. Raises ValueError for a quote that is not closed."""
    return list(_Reader(text).statements())


class _Reader:
    """One pass over the text."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        self.at = 0

    def statements(self) -> Iterator[Statement]:
        current = self._statement()
        while self.at < len(self.text):
            end = self._end()
            if end:
                current.end = end
                if current.words or current.redirects:
                    yield current
                current = self._statement()
            elif not self._skip() and not self._redirect(current):
                start = self.at
                pieces = tuple(self._pieces())
                word = Word(pieces, self.text[start : self.at].replace("\\\n", ""))
                if not current.words:
                    current.line = self._line(start)
                    if word.raw in _COMPOUND or self.text.startswith("()", self.at):
                        current.compound = word.raw
                current.words.append(word)
        if current.words or current.redirects:
            yield current

    def _statement(self) -> Statement:
        return Statement(self._line(self.at))

    def _line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def _end(self) -> str:
        if self.text[self.at] == "\n":
            self.at += 1
            return "\n"
        if _REDIRECT.match(self.text, self.at):
            return ""
        for end in _ENDS:
            if self.text.startswith(end, self.at):
                self.at += len(end)
                return end
        return ""

    def _skip(self) -> bool:
        """Skip spaces, continued lines and a comment."""
        match = re.compile(r"(?:[ \t]|\\\n)+|#[^\n]*").match(self.text, self.at)
        if match:
            self.at = match.end()
        return match is not None

    def _redirect(self, statement: Statement) -> bool:
        match = _REDIRECT.match(self.text, self.at)
        if not match:
            return False
        start = self.at
        self.at = match.end()
        while self._skip():
            pass
        for _ in self._pieces():
            pass
        statement.redirects.append(self.text[start : self.at])
        if match[0].startswith("<<"):
            statement.compound = match[0]
        return True

    def _pieces(self) -> Iterator[Piece]:
        """The pieces of the word here; an operator that begins no word is one."""
        text, first = "", True
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\n;|&<>":
                break
            piece = None
            if char in "()":
                if text or not first:
                    break
                self.at += 1
                yield Piece("shell", char)
                return
            if char == "\\":
                text += self.text[self.at + 1 : self.at + 2].replace("\n", "")
                self.at += 2
            elif char == "'":
                text += self._until("'")
                yield Piece("text", text, quoted=True)
                text = ""
            elif char == '"':
                if text:
                    yield Piece("text", text)
                    text = ""
                self.at += 1
                yield from self._double_quoted()
            elif char in "$`":
                piece = self._expansion(quoted=False)
            elif char in "*?[" or (char == "~" and first) or (char == "{" and self._is_list()):
                self.at += 1
                piece = Piece("shell", char)
            else:
                text += char
                self.at += 1
            if piece is not None:
                if text:
                    yield Piece("text", text)
                    text = ""
                yield piece
            first = False
        if text:
            yield Piece("text", text)

    def _is_list(self) -> bool:
        return re.compile(r"\{[^\s{}]*(,|\.\.)[^\s{}]*\}").match(self.text, self.at) is not None

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise ValueError(f"a {quote} in line {self._line(self.at)} is not closed")
        inside = self.text[self.at + 1 : end]
        self.at = end + 1
        return inside

    def _double_quoted(self) -> Iterator[Piece]:
        text, start = "", self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                yield Piece("text", text, quoted=True)
                return
            if char in "$`":
                piece = self._expansion(quoted=True)
                if text:
                    yield Piece("text", text, quoted=True)
                    text = ""
                yield piece
            elif char == "\\" and self.text[self.at + 1 : self.at + 2] in _ESCAPED:
                text += self.text[self.at + 1].replace("\n", "")
                self.at += 2
            else:
                text += char
                self.at += 1
        raise ValueError(f'a " in line {self._line(start)} is not closed')

    def _expansion(self, *, quoted: bool) -> Piece:
        start = self.at
        if self.text[start] == "`":
            return Piece("shell", f"`{self._until('`')}`", quoted)
        name = NAME.match(self.text, start + 1)
        if name:
            self.at = name.end()
            return Piece("variable", name[0], quoted)
        opening = self.text[start + 1 : start + 2]
        if opening not in ("{", "("):
            # $1, $?, $'...' and a lone $.
            self.at += 2 if opening and opening not in " \n\t\"';|&<>" else 1
            raw = self.text[start : self.at]
            return Piece("shell" if len(raw) > 1 or opening == "'" else "text", raw, quoted)
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
