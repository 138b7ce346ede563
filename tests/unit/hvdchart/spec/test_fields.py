"""The readers of a spec's values: their limits, and that their schema has the same ones."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema_rs import Draft7Validator

from hvdchart.errors import SpecError
from hvdchart.spec.fields import (
    ABSOLUTE,
    DIGEST,
    ENV,
    IMAGE,
    IMAGE_TAG,
    INTERFACE,
    LABEL_KEY,
    OBJECT,
    OBJECT_NAME,
    RELATIVE,
    RELEASE_NAME,
    Cpus,
    Integer,
    ListOf,
    MapOf,
    Memory,
    Number,
    OneOf,
    Reader,
    String,
)
from hvdchart.spec.yaml_tree import parse_document

LIST = ListOf(Integer(0, 9), shortest=1, longest=2)
MAP = MapOf(String("a key", "[a-z]+", 3), Integer(0, 9), longest=1)
WORD = String("a word", "[a-z]*", 3)
CPUS = "a number of CPUs from 0.001 to 16384, such as 4 or 500m"
MEMORY = "an amount of memory from 16Mi to 64Ti, such as 16Gi"
# A reader, what it makes of right texts, its message, and wrong texts.
READERS: list[tuple[Reader[Any], dict[str, Any], str, list[str]]] = [
    (Integer(1, 3), {"1": 1, "3": 3}, "a whole number from 1 to 3", ["0", "4", "2.5", "true"]),
    (Number(0.5, 2), {"0.5": 0.5, "2": 2.0}, "a number from 0.5 to 2", ["0.4", "2.1", "true", "a"]),
    (OneOf(("mpirun", "custom")), {}, "(did you mean 'mpirun'?)", ["mpirunn"]),
    (String("a word", "[a-z]*", 3, 0), {'""': ""}, "expected a word", ["A"]),
    (WORD, {"abc": "abc"}, "a word, 1 to 3 characters long", ['""', "abcd"]),
    (WORD, {}, 'a word; write it in quotes: "7"', ["7"]),
    (LIST, {"[7]": (7,), "[7, 8]": (7, 8)}, "a list of 1 to 2 items", ["[]", "[1, 2, 3]"]),
    (LIST, {}, "x[0]: got 10", ["[10]"]),
    (MAP, {"{abc: 1}": {"abc": 1}}, "a key of x: got 'A'", ["{A: 1}"]),
    (MAP, {}, "a map with at most 1 keys", ["{a: 1, b: 2}"]),
    (OBJECT, {"{a: {b: [1]}}": {"a": {"b": [1]}}}, "expected a map", ["[]"]),
    (
        ENV,
        {"{A: 1.50, B: ''}": {"A": "1.50", "B": ""}, "{A: {x: {}}}": {"A": {"x": {}}}},
        'got true; expected text or a number ("true" and "" need quotes)',
        ["{A: true}"],
    ),
    (Cpus(), {"1m": 1, "16384": 16384_000, "1.5": 1500}, CPUS, ["0", "16384001m", "true", "[]"]),
    (Memory(), {"16Mi": 2**24, "64Ti": 2**46}, MEMORY, ["16777215", "65Ti", "128m"]),
]


RIGHT = [(reader, text, value) for reader, right, _, _ in READERS for text, value in right.items()]
WRONG = [(reader, text, says) for reader, _, says, wrong in READERS for text in wrong]


@pytest.mark.parametrize(("reader", "text", "value"), RIGHT)
def test_reader_and_schema_accept_a_right_text(
    reader: Reader[Any], text: str, value: object
) -> None:
    node = parse_document(text.encode(), "a")
    assert reader.read(node, "x") == value
    assert Draft7Validator(reader.schema()).is_valid(node.plain)


@pytest.mark.parametrize(("reader", "text", "says"), WRONG)
def test_reader_refuses_a_wrong_text(reader: Reader[Any], text: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        reader.read(parse_document(text.encode(), "a"), "x")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (reader, text)
        for reader, text, says in WRONG
        # The schema leaves the values of variables and the limits of quantities to the reader.
        if reader is not ENV and says not in (CPUS, MEMORY)
    ],
)
def test_schema_refuses_a_wrong_text(reader: Reader[Any], text: str) -> None:
    assert not Draft7Validator(reader.schema()).is_valid(parse_document(text.encode(), "a").plain)


# A pattern, and right and wrong texts.
PATTERNS: list[tuple[String, list[str], list[str]]] = [
    (RELEASE_NAME, ["a", "a-1", "a" * 45], ["1a", "a-", "A", "a.b", "a" * 46]),
    (OBJECT_NAME, ["a.b-c", "1"], ["-a", "a.", "A"]),
    (LABEL_KEY, ["a", "A_b.c", "example.com/a", "a" * 63], ["", "/a", "a/", "a" * 64, "-a"]),
    (ABSOLUTE, ["/", "/a..b", "/a/b"], ["a", "/..", "/a/../b", "/a:b", "/a\n"]),
    (RELATIVE, ["a", "a/b", "..a"], ["/a", "..", "a/..", "a/../b"]),
    (INTERFACE, ["eth0", "a" * 15], ["a" * 16, "a b"]),
    (
        IMAGE,
        ["a", "localhost:5000/a/b-c", "a.b/c_d"],
        ["a:1/", "A", "/a", "a//b", "python:3.11", "app:1", "a:b/c"],
    ),
    (
        DIGEST,
        ["sha256:" + "a1" * 32, "sha512:" + "0" * 128],
        [
            "sha256:" + "a" * 63,
            "sha512:" + "a" * 64,
            "md5:" + "a" * 64,
            "a" * 64,
            "sha256:" + "A" * 64,
        ],
    ),
    (IMAGE_TAG, ["1.0", "_a"], ["", ".1", "a" * 129]),
]


@pytest.mark.parametrize(
    ("pattern", "text"), [(pattern, text) for pattern, right, _ in PATTERNS for text in right]
)
def test_pattern_accepts_a_right_text(pattern: String, text: str) -> None:
    assert pattern.read(parse_document(f'"{text}"'.encode(), "a"), "x") == text
    assert Draft7Validator(pattern.schema()).is_valid(text)


@pytest.mark.parametrize(
    ("pattern", "text"), [(pattern, text) for pattern, _, wrong in PATTERNS for text in wrong]
)
def test_pattern_refuses_a_wrong_text(pattern: String, text: str) -> None:
    quoted = '"' + text.replace("\n", "\\n") + '"'
    with pytest.raises(SpecError):
        pattern.read(parse_document(quoted.encode(), "a"), "x")
    assert not Draft7Validator(pattern.schema()).is_valid(text)
