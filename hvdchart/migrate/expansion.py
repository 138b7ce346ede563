"""Expands the words of shell text with the variables that the text sets. Runs nothing. Pure.

What only a shell can expand (a command substitution, a pattern, a variable that nothing sets) stays
as it is written, and its word says so.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hvdchart.migrate.shell import NAME, Piece, Word

Variables = Mapping[str, str | None]
"""Names and values; None is a value that only a shell knows."""

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
    return {
        name
        for word in words
        for piece in word.pieces
        if piece.kind != "text"
        for name in NAME.findall(piece.text)
    }


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
