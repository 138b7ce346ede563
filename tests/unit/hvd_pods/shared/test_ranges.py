"""Numbers as ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_pods.shared.ranges import format_ranges, parse_ranges


@given(st.sets(st.integers(0, 60)))
def test_what_was_written_is_read_again(numbers: set[int]) -> None:
    text = ",".join(format_ranges(sorted(numbers)))
    assert [number for part in parse_ranges(text) for number in part] == sorted(numbers)


def test_numbers_keep_their_order() -> None:
    assert format_ranges([4, 5, 0, 1, 2, 9]) == ["4-5", "0-2", "9"]


@pytest.mark.parametrize("text", ["x", "1-x", "-1", "1,,2", "1-2-3", "9" * 5000, "0-9999999"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="range"):
        list(parse_ranges(text))
