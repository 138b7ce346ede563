"""The tree of YAML: its values, their places, and what is refused where."""

from __future__ import annotations

import re

import pytest

from hvdchart.errors import SpecError
from hvdchart.spec.yaml_tree import MAX_BYTES, MAX_DEPTH, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{a: 1, <<: {a: 2, b: 3}, c: 4}", {"a": 1, "b": 3, "c": 4}),
        ("{<<: {a: 1}, <<: {b: 2}, c: 3}", {"a": 1, "b": 2, "c": 3}),
        ("{<<: [{a: 1}, {a: 2, b: 3}]}", {"a": 1, "b": 3}),
        ("[&x {a: [&y 1, *y]}, *x]", [{"a": [1, 1]}, {"a": [1, 1]}]),
        (
            "[no, on, 2024-01-01, =, 12:30, 1.50, 0x1f, 0o17, 1e3, TRUE, False, ~, null, '7']",
            [
                "no",
                "on",
                "2024-01-01",
                "=",
                "12:30",
                1.5,
                31,
                15,
                1000.0,
                True,
                False,
                None,
                None,
                "7",
            ],
        ),
    ],
)
def test_yaml_is_read_as_yaml_1_2(text: str, expected: object) -> None:
    assert parse(text.encode(), "a").plain == expected


# 10 million values from seven lines.
MANY = b"a: &a [1,1,1,1,1,1,1,1,1,1]\n" + b"".join(
    f"{c}: &{c} [{','.join([f'*{p}'] * 10)}]\n".encode()
    for p, c in zip("abcdef", "bcdefg", strict=True)
)
# The parser counts the levels of an alias once, where its anchor is.
DEEP = f"a: &a {'[' * 25}{']' * 25}\nb: {'[' * 20}*a{']' * 20}\n".encode()


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        (b"", "a", "no YAML value"),
        (b"a: b: c\n", "a:1:5", "broken YAML: mapping values are not allowed here"),
        (b"x: [1\n", "a:2:1", "but got '<stream end>', in what begins at 1:4"),
        (b"a: 1\n---\nb: 2\n", "a:2:1", "found another document"),
        (b"a:\n\tb: 1\n", "a:2:1", "character '\\t' that cannot start any token"),
        (b'a:\n  - "\\UFFFFFFFF"\n', "a", "expected plain YAML"),
        (b"a: \xc2\x80\n", "a", "expected plain YAML"),
        (b"a: b\nc: \xff\n", "a:2:4", "byte 0xff is not UTF-8; expected text in UTF-8"),
        (b"a: !mine {}\n", "a:1:4", "expected a value without a YAML tag"),
        (b"x: !!seq {a: 1}\n", "a:1:4", "expected a value without a YAML tag"),
        (b"x:\n  - {b: 1, b: 2}\n", "a:2:12", "key 'b' is given twice in one map"),
        (b"x:\n  - {b: 1, 7: 2}\n", "a:2:12", "key 7 is not text"),
        (b"? [a]\n: 2\n", "a:1:3", "a map or list as a key; expected text as a key"),
        (b"a: {{ x }}\n", "a:1:5", "a template with {{ }} must be rendered first"),
        (b"x: {<<: 7}\n", "a:1:9", "<<: got 7; expected a map to merge"),
        (b"x: 1_0.5\n", "a:1:4", "number 1_0.5 with '_'; expected 10.5, or quotes for text"),
        (b"x: 010\n", "a:1:4", "number 010; expected a finite decimal number"),
        (b"x: .inf\n", "a:1:4", "number .inf; expected a finite decimal number"),
        (b"x:\n  - a\x01b\n", "a:2:6", "control character '\\x01'; expected printable text"),
        (b"x: [&a {b: *a}]\n", "a:1:5", "an alias is inside its own anchor; expected no cycle"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "a:1:41", "nested too deep"),
        (b"a: " + b"[" * 2000, "a:1:43", "nested too deep"),
        (b"#".ljust(MAX_BYTES + 1, b"x"), "a", "too long; expected at most 131072 bytes"),
    ],
)
def test_wrong_yaml_is_refused_at_its_place(text: bytes, place: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text, "a")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (DEEP, "nested too deep; expected at most 40 levels"),
        (MANY, "aliases expand to too many values; expected at most 50000 values"),
    ],
    ids=["deep", "many"],
)
def test_aliases_that_expand_to_too_much_are_refused(text: bytes, says: str) -> None:
    with pytest.raises(SpecError, match=re.escape(says)):
        parse(text, "a")


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf1",
        b"1" * 40,
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        b"#".ljust(MAX_BYTES - 2, b"x") + b"\n7",
    ],
    ids=len,
)
def test_yaml_at_the_limit_is_read(text: bytes) -> None:
    assert parse(text, "a").value
