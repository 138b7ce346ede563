"""Messages mark the names of values."""

from __future__ import annotations

import pytest

from devtools.checks.messages import line_problems, python_problems


@pytest.mark.parametrize(
    ("line", "is_problem"),
    [
        ('raise Refusal("set worker.number to 2")', True),
        ('raise Refusal(f"set worker.number to {count}")', True),
        ('raise Refusal("set `worker.number` to 2")', False),
        ('raise Refusal("set train.nothing to 2")', True),
        ('raise Refusal("set `train.command`, or name train.py")', False),
        ("'''Read worker.number of a release.'''", False),
        ('value("worker.number")', False),
    ],
)
def test_message_marks_values_and_names_keys_that_exist(line: str, is_problem: bool) -> None:
    problems = list(python_problems(f"import os\n{line}\n"))
    assert [number for number, _ in problems] == [2] * is_problem


def test_line_of_a_shell_script_marks_values_unless_it_is_a_comment() -> None:
    problems = list(line_problems("# worker.number\necho worker.number\necho '`worker.number`'\n"))
    assert [number for number, _ in problems] == [2]
