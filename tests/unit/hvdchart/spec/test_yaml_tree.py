"""The tree of YAML: its values, their places, and what is refused where."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from hvdchart.errors import SpecError
from hvdchart.spec.yaml_tree import MAX_BYTES, MAX_DEPTH, Node, Place, from_plain, parse

MOST_VALUES = 50_000


def below(node: Node, name: str) -> Node:
    """The value of a key of a map."""
    assert isinstance(node.value, dict), f"{node} is no map"
    return node.value[name]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{a: 1, <<: {a: 2, b: 3}, c: 4}", {"a": 1, "b": 3, "c": 4}),
        ("{<<: {a: 1}, <<: {b: 2}, c: 3}", {"a": 1, "b": 2, "c": 3}),
        ("{<<: [{a: 1}, {a: 2, b: 3}]}", {"a": 1, "b": 3}),
        ("[&x {a: [&y 1, *y]}, *x]", [{"a": [1, 1]}, {"a": [1, 1]}]),
        ("[no, on, 2024-01-01, =, 12:30, 1.50, 0x1f, 0o17, 1e3, TRUE, False, ~, null, '7']",
         ["no", "on", "2024-01-01", "=", "12:30", 1.5, 31, 15, 1000.0, True, False, None, None,
          "7"]),
    ],
)  # fmt: skip
def test_yaml_is_read_as_yaml_1_2(text: str, expected: object) -> None:
    assert parse(text.encode(), "a").plain == expected


def test_values_and_keys_have_their_places() -> None:
    root = parse(b"one: 1\nmap:\n    key:   [x, {y: z}]\n    none:\n\nlast: 2\n", "a")
    inner = below(root, "map")
    key, none = below(inner, "key"), below(inner, "none")
    assert (str(root.place), root.key_place) == ("a:1:1", None)
    assert (str(inner.place), str(inner.key_place)) == ("a:3:5", "a:2:1")
    assert (str(key.place), str(key.key_place)) == ("a:3:12", "a:3:5")
    assert isinstance(key.value, list)
    assert [str(item.place) for item in key.value] == ["a:3:13", "a:3:16"]
    assert (str(none.place), none.value) == ("a:4:5", None), "a missing value is at its key"
    assert (below(root, "last").place.line, str(Place("a"))) == (6, "a")


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("x:\n  - {b: 1, b: 2}\n", "2:12", "key 'b' is given twice in one map"),
        ("x:\n  - {b: 1, 7: 2}\n", "2:12", "key 7 is not text"),
        ("x: {<<: 7}\n", "1:9", "<<: got 7; expected a map to merge"),
        ("x: !!set {a}\n", "1:4", "expected a value without a YAML tag"),
        ("x: !!seq {a: 1}\n", "1:4", "expected a value without a YAML tag"),
        ("x: !!map [a]\n", "1:4", "expected a value without a YAML tag"),
        ("x: !!binary aGk=\n", "1:4", "tag binary"),
        ("x: 1_000\n", "1:4", "number 1_000 with '_'; expected 1000, or quotes for text"),
        ("x: 010\n", "1:4", "number 010; expected a finite decimal number"),
        ("x: 1" + "0" * 40 + "\n", "1:4", "expected a finite decimal number"),
        ("x: .inf\n", "1:4", "number .inf; expected a finite decimal number"),
        ("x: \a\n", "1:4", "control character '\\x07'; expected printable text"),
        ("x:\n  - a\x01b\n", "2:6", "control character '\\x01'; expected printable text"),
        ('x: "a\\0"\n', "1:4", "control character '\\x00'; expected printable text"),
        ("? {a: 1}\n: 2\n", "1:3", "a map or list as a key; expected text as a key"),
        ("? [a]\n: 2\n", "1:3", "a map or list as a key; expected text as a key"),
        ("x: [&a {b: *a}]\n", "1:5", "an alias is inside its own anchor; expected no cycle"),
        ("x: [1\n", "2:1", "missing in the brackets that open at 1:4"),
    ],
)
def test_wrong_yaml_is_refused_at_its_place(text: str, place: str, says: str) -> None:
    with pytest.raises(SpecError, match=re.escape(says)) as caught:
        parse(text.encode(), "a")
    assert caught.value.place == f"a:{place}"


@pytest.mark.parametrize("text", [b"x: \xff\n", b"\xef\xbb\xbfx: \xff\n"])
def test_a_byte_that_is_not_utf_8_is_refused_at_its_place(text: bytes) -> None:
    with pytest.raises(SpecError, match="byte 0xff is not UTF-8; expected text in UTF-8") as caught:
        parse(text, "a")
    assert caught.value.place == "a:1:4"


def test_a_byte_order_mark_is_skipped() -> None:
    assert parse(b"\xef\xbb\xbfx: 1\n", "a").plain == {"x": 1}


@pytest.mark.parametrize("number", ["FFFFFFFF", "00110000"])
def test_a_character_that_does_not_exist_is_refused(number: str) -> None:
    with pytest.raises(SpecError, match=r"^a: broken YAML: .+; expected plain YAML"):
        parse(f'a:\n  - "\\U{number}"\n'.encode(), "a")


def test_a_character_that_yaml_does_not_have_is_refused() -> None:
    with pytest.raises(SpecError, match=r"^a: broken YAML: .*#x0080.*; expected plain YAML"):
        parse("a: \x80\n".encode(), "a")


def test_forty_levels_may_be_nested() -> None:
    def nested(levels: int) -> bytes:
        return b"[" * levels + b"]" * levels

    assert parse(nested(MAX_DEPTH), "a")
    with pytest.raises(SpecError, match="nested too deep; expected at most 40 levels"):
        parse(nested(MAX_DEPTH + 1), "a")


def test_levels_of_aliases_are_counted_where_they_are_used() -> None:
    """The parser counts those of an alias once, where its anchor is."""
    half = "[" * 25 + "]" * 25
    text = f"a: &a {half}\nb: {'[' * 20}*a{']' * 20}\n"
    with pytest.raises(SpecError, match="nested too deep; expected at most 40 levels"):
        parse(text.encode(), "a")


def test_the_name_of_an_anchor_may_be_used_again(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse(b"[&x 1, &x 2, *x]", "a").plain == [1, 2, 2]
    assert capfd.readouterr() == ("", ""), "the parser prints no warning"


def test_a_number_may_have_forty_digits() -> None:
    assert parse(b"1" * 40, "a").value == int("1" * 40)


def test_a_file_of_the_greatest_size_is_read() -> None:
    text = b"#".ljust(MAX_BYTES - 2, b"x") + b"\n7"
    assert parse(text, "a").value == 7
    with pytest.raises(SpecError, match="too long; expected at most 131072 bytes"):
        parse(text + b"1", "a")


@pytest.mark.slow
def test_aliases_may_expand_to_fifty_thousand_values() -> None:
    def text(more: int) -> bytes:
        """The root, a list of 100, one of 498 such lists, and one with `more` values."""
        lists = f"[{', '.join('1' * 99)}]", f"[{', '.join(['*a'] * 498)}]"
        return f"a: &a {lists[0]}\nb: {lists[1]}\nc: [{', '.join('1' * more)}]\n".encode()

    most = MOST_VALUES - 1 - 100 - 1 - 49_800 - 1
    parsed = parse(text(most), "a")
    assert len(parsed.plain["b"]) == 498
    with pytest.raises(SpecError, match=f"too many values; expected at most {MOST_VALUES} values"):
        parse(text(most + 1), "a")


def test_values_that_yaml_lacks_are_kept_for_readers_to_refuse() -> None:
    place = Place("a", 1, 2)
    tree = from_plain({1: [Path("x"), "y"]}, place)
    assert isinstance(tree.value, dict)
    assert list(tree.value) == ["1"], "keys are text"
    items = below(tree, "1")
    assert isinstance(items.value, list)
    assert [item.text for item in items.value] == [repr(Path("x")), "y"]
    assert {items.place, items.key_place, items.value[0].key_place} == {place}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{a: 1, b: 2}", "a map with 2 keys"),
        ("{}", "an empty map"),
        ("[1, 2, 3]", "a list of 3"),
        ("[]", "an empty list"),
        ("~", "nothing (null)"),
        ("1.50", "1.50"),
        ("a b", "'a b'"),
        ("x" * 58, f"'{'x' * 58}'"),
        ("x" * 59, f"'{'x' * 56}..."),
    ],
)
def test_values_are_quoted_shortly(text: str, shown: str) -> None:
    assert parse(text.encode(), "a").shown == shown
