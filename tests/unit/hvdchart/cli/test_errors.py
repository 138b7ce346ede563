"""Messages of errors, and the exit codes with which the command ends."""

from __future__ import annotations

import pytest

from hvdchart import errors
from hvdchart.errors import SpecError


def test_unprintable_characters_in_a_message_are_escaped() -> None:
    error = SpecError("a.yaml:1:1", "x", "unknown key 'a\n\x1b\\b'", "one of a, b")
    assert str(error) == "a.yaml:1:1: x: unknown key 'a\\n\\x1b\\b'; expected one of a, b"


@pytest.mark.parametrize(
    ("number", "last"), [(20, "a:20: wrong; expected right"), (21, "and 1 more errors")]
)
def test_the_first_twenty_errors_are_shown(number: int, last: str) -> None:
    wrong = [SpecError(f"a:{line}", "", "wrong", "right") for line in range(1, number + 1)]
    lines = str(SpecError.join(wrong)).splitlines()
    assert (len(lines), lines[-1]) == (number, last)


def test_each_error_has_its_documented_exit_code() -> None:
    """docs/operate.md lists them; scripts rely on the numbers."""
    kinds = (
        errors.HvdchartError, errors.DifferenceError, errors.SpecError, errors.ValuesError,
        errors.FileError, errors.HelmError, errors.ClusterError, errors.RunFailedError,
        errors.ImageError, errors.TimeLimitError,
    )  # fmt: skip
    assert [kind.exit_code for kind in kinds] == [1, 1, 3, 4, 5, 6, 7, 8, 9, 124]
