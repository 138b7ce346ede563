"""The tree of YAML: its values, their places, and what is refused where."""

from __future__ import annotations

import pytest

from hvdchart.errors import SpecError
from hvdchart.spec.yaml_tree import MAX_INPUT_BYTES, MAX_LEVELS, parse_document


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{a: 1, <<: {a: 2, b: 3}, c: 4}", {"a": 1, "b": 3, "c": 4}),
        ("{<<: {a: 1}, <<: {b: 2}, c: 3}", {"a": 1, "b": 2, "c": 3}),
        ("{<<: [{a: 1}, {a: 2, b: 3}]}", {"a": 1, "b": 3}),
        ("{<<: [{b: 1}, {a: $(b)}], c: 3}", {"b": 1, "a": "$(b)", "c": 3}),
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
    plain = parse_document(text.encode(), "a").plain
    assert plain == expected
    # The keys have an order, too: in a list of variables, $(A) needs A before it.
    assert str(plain) == str(expected)


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
        (b"a: b: c\n", "a:1:5", "mapping values"),
        (b"x: [1\n", "a:2:1", "1:4"),
        (b"a: 1\n---\nb: 2\n", "a:2:1", "document"),
        (b"a:\n\tb: 1\n", "a:2:1", "'\\t'"),
        (b'a:\n  - "\\UFFFFFFFF"\n', "a", "expected plain YAML"),
        (b"a: \xc2\x80\n", "a", "expected plain YAML"),
        (b"a: b\nc: \xff\n", "a:2:4", "0xff"),
        (b"a: !mine {}\n", "a:1:4", "tag"),
        (b"x: !!seq {a: 1}\n", "a:1:4", "tag"),
        (b"x:\n  - {b: 1, b: 2}\n", "a:2:12", "key 'b'"),
        (b"x:\n  - {b: 1, 7: 2}\n", "a:2:12", "key 7"),
        (b"? [a]\n: 2\n", "a:1:3", "as a key"),
        (b"a: {{ x }}\n", "a:1:5", "{{ }}"),
        (b"x: {<<: 7}\n", "a:1:9", "<<: got 7"),
        (b"x: 1_0.5\n", "a:1:4", "expected 10.5"),
        (b"x: 010\n", "a:1:4", "number 010"),
        (b"x: .inf\n", "a:1:4", "number .inf"),
        (b"x:\n  - a\x01b\n", "a:2:6", "'\\x01'"),
        (b"x: [&a {b: *a}]\n", "a:1:5", "anchor"),
        (b"[" * (MAX_LEVELS + 1) + b"]" * (MAX_LEVELS + 1), "a:1:41", " 40 "),
        (b"a: " + b"[" * 2000, "a:1:43", " 40 "),
        (b"#".ljust(MAX_INPUT_BYTES + 1, b"x"), "a", " 131072 "),
    ],
)
def test_wrong_yaml_is_refused_at_its_place(text: bytes, place: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_document(text, "a")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("text", "most"),
    [(DEEP, 40), (MANY, 50000)],
    ids=["deep", "many"],
)
def test_aliases_that_expand_to_too_much_are_refused(text: bytes, most: int) -> None:
    with pytest.raises(SpecError, match=f" {most} "):
        parse_document(text, "a")


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf1",
        b"1" * 40,
        b"[" * MAX_LEVELS + b"]" * MAX_LEVELS,
        b"#".ljust(MAX_INPUT_BYTES - 2, b"x") + b"\n7",
    ],
    ids=len,
)
def test_yaml_at_the_limit_is_read(text: bytes) -> None:
    assert parse_document(text, "a").value
