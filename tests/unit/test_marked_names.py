"""Messages mark the names of values, so that they can be worded (hvdchart/script/wording.py)."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

from devtools.common.repository import DOCS, ROOT
from hvdchart.chart_files import chart_dir, read_data
from hvdchart.spec.values_schema import schema_at, values_schema

PROGRAMS = chart_dir() / "files" / "hvd_pods"
# What migrate writes is read beside the values that it names.
MODULES = [
    file
    for folder in (PROGRAMS, ROOT / "hvdchart")
    for file in sorted(folder.rglob("*.py"))
    if "migrate" not in file.parts
]
# A key of `train`, which the chart does not have, and not a script such as train.py.
OF_TRAIN = re.compile(r"\btrain\.(?!(?:py|sh|h5|yaml)\b)([a-zA-Z]\w*)")
NAME = re.compile(r"(?<![\w./-])[a-zA-Z]\w*(?:\.[a-zA-Z]\w*)+")


def unmarked(text: str) -> list[str]:
    """The values of the chart that a text names outside backticks."""
    return [name for name in NAME.findall(re.sub(r"`[^`]*`", "", text)) if is_value(name)]


def is_value(name: str) -> bool:
    """Whether the chart has this value below an object whose keys its schema lists."""
    steps = name.split(".")
    above = schema_at(values_schema(), steps[:1]) or {}
    return "properties" in above and schema_at(values_schema(), steps) is not None


def texts(source: str) -> Iterator[str]:
    """The strings of a module that have several words, without docstrings; fields are empty."""
    module = ast.parse(source)
    # Docstrings, and the parts of f-strings.
    left_out: set[ast.AST] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Expr):
            left_out.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            left_out.update(node.values)
    for node in ast.walk(module):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        words = [part.value for part in parts if isinstance(part, ast.Constant)]
        text = "".join(word for word in words if isinstance(word, str))
        if " " in text and node not in left_out:
            yield text


def test_messages_mark_values() -> None:
    every = [text for file in MODULES for text in texts(file.read_text("utf-8"))]
    assert len(every) > 1000
    assert [text for text in every if unmarked(text)] == []


def test_messages_name_keys_of_a_spec_that_exist() -> None:
    schema = json.loads((DOCS / "spec.schema.json").read_text("utf-8"))
    keys = set(schema["properties"]["train"]["properties"])
    every = [text for file in MODULES for text in texts(file.read_text("utf-8"))]
    named = {name for text in every for name in OF_TRAIN.findall(text)}
    assert "command" in named
    assert named - keys == set()


def test_remedies_for_pods_mark_values() -> None:
    problems = read_data("pod_problems.json")
    remedies = [each["remedy"] for kind in problems.values() for each in kind.values()]
    assert [text for text in remedies if unmarked(text)] == []


def test_messages_of_shell_scripts_mark_values() -> None:
    scripts = [file.read_text("utf-8") for file in PROGRAMS.rglob("*.sh")]
    lines = [line for text in scripts for line in text.splitlines() if not line.startswith("#")]
    assert [line for line in lines if unmarked(line)] == []
