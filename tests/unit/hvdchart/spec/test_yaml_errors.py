"""Errors of the parser that no words are known for: what it says, and where."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml.error import FileMark, MarkedYAMLError

from hvdchart.spec.yaml_tree import describe_error

START, HERE = FileMark("a", 0, 0, 1), FileMark("a", 9, 2, 4)


@pytest.mark.parametrize(
    ("arguments", "place", "problem"),
    [
        ((None, None, "odd", HERE), (3, 5), "odd"),
        (("at work", HERE, "odd", HERE), (3, 5), "odd"),
        (("at work", START, "odd\n  enough", HERE), (3, 5), "odd enough, in what begins at 1:2"),
        (("at work", START), (1, 2), "at work"),
        ((), (1, 1), "not YAML"),
    ],
)
def test_unknown_error_is_quoted_at_its_place(
    arguments: tuple[Any, ...], place: tuple[int, int], problem: str
) -> None:
    broken = describe_error(MarkedYAMLError(*arguments))
    assert ((broken.line, broken.column), broken.problem) == (place, f"broken YAML: {problem}")
