"""Messages of errors."""

from __future__ import annotations

from hvdchart.errors import SpecError


def test_unprintable_characters_in_a_message_are_escaped() -> None:
    error = SpecError("a.yaml:1:1", "x", "unknown key 'a\n\x1b\\b'", "one of a, b")
    assert str(error) == "a.yaml:1:1: x: unknown key 'a\\n\\x1b\\b'; expected one of a, b"
