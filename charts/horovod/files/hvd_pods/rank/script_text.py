"""What the text of a rank's script says of its imports and of the variables that it sets."""

from __future__ import annotations

import ast
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence


def parse(source: bytes) -> ast.AST:
    """The program's syntax; of a wrong one, which the rank reports, that of a program unknown."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.parse("from . import unknown")


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and top-level name of each module that the script imports; "." of its own package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." if node.level else (node.module or "").partition(".")[0]


def variables(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each environment variable that the script sets."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Subscript) and _is_environ(target.value):
                    yield from _texts(node.lineno, [target.slice])
                elif _is_environ(target) and isinstance(node.value, ast.Dict):
                    yield from _texts(node.lineno, node.value.keys)
        elif isinstance(node, ast.Call):
            yield from _set_by_call(node)


def _set_by_call(call: ast.Call) -> Iterator[tuple[int, str]]:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = function.value if isinstance(function, ast.Attribute) else None
    if name == "putenv" or (name == "setdefault" and _is_environ(owner)):
        yield from _texts(call.lineno, call.args[:1])
    elif name == "update" and _is_environ(owner):
        for argument in call.args:
            if isinstance(argument, ast.Dict):
                yield from _texts(call.lineno, argument.keys)
        for keyword in call.keywords:
            yield call.lineno, keyword.arg or ""


def _is_environ(node: Any) -> bool:
    return getattr(node, "attr", getattr(node, "id", None)) in ("environ", "environb")


def _texts(line: int, nodes: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """The literal texts; Python 3.8 wraps the index of a subscript once more."""
    for node in nodes:
        constant = node.value if type(node).__name__ == "Index" else node
        if isinstance(constant, ast.Constant) and isinstance(constant.value, (str, bytes)):
            value = constant.value
            yield line, value if isinstance(value, str) else os.fsdecode(value)
