"""Arithmetic of a shell, as far as it depends on the text alone."""

from __future__ import annotations

import pytest

from hvdchart.migrate.shell import calculate


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 - 1", "0"), ("1 - 2", None), ("7 % 4 + A", "6"), ("${A} * $A", "9"), ("B", None),
        ("1000000 * 999999", "999999000000"), ("1000000 * 1000000", None),
        ("999999999999", "999999999999"), ("1000000000000", None),
        ("7 / 0", None), ("1.5", None), ("True", None), ("2 ** 3", None), ("1 +", None),
        ("11" + "+1" * 99, "110"), ("111" + "+1" * 99, None),
    ],
)  # fmt: skip
def test_arithmetic_of_known_whole_numbers_is_calculated(
    expression: str, value: str | None
) -> None:
    """With results from 0 to 10^12, and at most 200 characters of it."""
    assert calculate(expression, {"A": "3", "B": None}) == value
