"""Wording that several reports share."""

from __future__ import annotations

import pytest

from hvdchart.text import join_names


@pytest.mark.parametrize(
    ("names", "text"), [("", ""), ("abc", "a, b, c"), ("abcd", "a, b, c and 1 more")]
)
def test_first_names_are_listed_and_the_others_counted(names: str, text: str) -> None:
    assert join_names(names) == text
