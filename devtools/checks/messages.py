"""Check that messages mark the names of values, so that hvdchart can word them for a spec
(hvdchart/script/wording.py), and that the keys of a spec that they name exist.

`python -m devtools.checks.messages` prints each place and exits with 1 when there is one.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain

from devtools.checks.problems import check_files, print_problems
from devtools.common.repository import DOCS
from hvdchart.spec.values_schema import schema_at, values_schema

POD_PROGRAMS = "charts/horovod/files/hvd_pods/"
POD_PROBLEMS = f"{POD_PROGRAMS}shared/pod_problems.json"
# What migrate writes is read beside the values that it names.
LIBRARY = ("hvdchart/*.py", ":(exclude)hvdchart/migrate")
# A key of `train`, which the chart does not have, and not a script such as train.py.
TRAIN_KEY = re.compile(r"\btrain\.(?!(?:py|sh|h5|yaml)\b)([a-zA-Z]\w*)")
VALUE_NAME = re.compile(r"(?<![\w./-])[a-zA-Z]\w*(?:\.[a-zA-Z]\w*)+")


@cache
def train_keys() -> set[str]:
    schema = json.loads((DOCS / "spec.schema.json").read_text("utf-8"))
    return set(schema["properties"]["train"]["properties"])


def is_value(name: str) -> bool:
    """Return whether the chart has this value below an object whose keys its schema lists."""
    steps = name.split(".")
    above = schema_at(values_schema(), steps[:1]) or {}
    return "properties" in above and schema_at(values_schema(), steps) is not None


def mark_problems(text: str) -> Iterator[str]:
    """Yield the values of the chart that a text names outside backticks."""
    for name in VALUE_NAME.findall(re.sub(r"`[^`]*`", "", text)):
        if is_value(name):
            yield f"{name}: write the name of a value in backticks"


def find_messages(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of the strings of a module that have several words, without docstrings.

    The fields of an f-string are empty.
    """
    module = ast.parse(source)
    # Docstrings, and the parts of f-strings.
    left_out: set[ast.AST] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Expr):
            left_out.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            left_out.update(node.values)
    for node in ast.walk(module):
        if not isinstance(node, (ast.JoinedStr, ast.Constant)) or node in left_out:
            continue
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        words = [part.value for part in parts if isinstance(part, ast.Constant)]
        text = "".join(word for word in words if isinstance(word, str))
        if " " in text:
            yield node.lineno, text


def python_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and problem for each message of a Python file."""
    for number, message in find_messages(text):
        for problem in mark_problems(message):
            yield number, problem
        for key in TRAIN_KEY.findall(message):
            if key not in train_keys():
                yield number, f"train.{key}: a spec has no such key"


def line_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and problem for each line of a file that is no comment."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("#"):
            for problem in mark_problems(line):
                yield number, problem


def main() -> int:
    """Print all problems. Return 1 when there is one."""
    return print_problems(
        chain(
            check_files(python_problems, *LIBRARY),
            check_files(python_problems, f"{POD_PROGRAMS}*.py"),
            check_files(line_problems, f"{POD_PROGRAMS}*.sh"),
            check_files(line_problems, POD_PROBLEMS),
        )
    )


if __name__ == "__main__":
    sys.exit(main())
