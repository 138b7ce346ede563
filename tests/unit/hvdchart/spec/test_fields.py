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
    GROUP_NAME,
    IMAGE,
    INTERFACE,
    LABEL_KEY,
    LABEL_VALUE,
    OBJECT_NAME,
    RELATIVE,
    RELEASE_NAME,
    RESOURCE,
    TAG,
    AnyObject,
    Boolean,
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
from hvdchart.spec.yaml_tree import parse

LIST = ListOf(Integer(0, 9), shortest=1, longest=2)
MAP = MapOf(String("a key", "[a-z]+", 3), Integer(0, 9), longest=1)
ACCEPTED: list[tuple[Reader[Any], str, Any]] = [
    (Integer(1, 3), "1", 1),
    (Integer(1, 3), "3", 3),
    (Number(0.5, 2), "0.5", 0.5),
    (Number(0.5, 2), "2", 2.0),
    (Boolean(), "false", False),
    (OneOf(("a", "b")), "b", "b"),
    (String("a word", "[a-z]*", 3, 0), '""', ""),
    (String("a word", "[a-z]*", 3), "abc", "abc"),
    (LIST, "[7]", (7,)),
    (LIST, "[7, 8]", (7, 8)),
    (MAP, "{abc: 1}", {"abc": 1}),
    (AnyObject(), "{a: {b: [1]}}", {"a": {"b": [1]}}),
    (ENV, "{A: 1.50, B: x}", {"A": "1.50", "B": "x"}),
    (ENV, "{A: {secretKeyRef: {}}}", {"A": {"secretKeyRef": {}}}),
    (ENV, "{A: ''}", {"A": ""}),
    (Cpus(), "1m", 1), (Cpus(), "16384", 16384_000), (Cpus(0), "0", 0), (Cpus(), "1.5", 1500),
    (Memory(), "16Mi", 16 * 2**20), (Memory(), "64Ti", 64 * 2**40), (Memory("0", "1"), "1", 1),
]  # fmt: skip
REFUSED: list[tuple[Reader[Any], str, str]] = [
    (Integer(1, 3), "0", "a whole number from 1 to 3"),
    (Integer(1, 3), "4", "a whole number from 1 to 3"),
    (Integer(1, 3), "2.5", "a whole number from 1 to 3"),
    (Integer(1, 3), "true", "a whole number from 1 to 3"),
    (Number(0.5, 2), "0.4", "a number from 0.5 to 2"),
    (Number(0.5, 2), "2.1", "a number from 0.5 to 2"),
    (Number(0.5, 2), "true", "a number from 0.5 to 2"),
    (Number(0.5, 2), "a", "a number from 0.5 to 2"),
    (Boolean(), "1", "true or false"),
    (OneOf(("a", "b")), "c", "one of a, b"),
    (OneOf(("mpirun", "custom")), "mpirunn", "(did you mean 'mpirun'?)"),
    (String("a word", "[a-z]*", 3), '""', "a word, 1 to 3 characters long"),
    (String("a word", "[a-z]*", 3), "abcd", "a word, 1 to 3 characters long"),
    (String("a word", "[a-z]*", 3), "A", "expected a word"),
    (String("a word", "[a-z]*", 3), "7", 'a word; write it in quotes: "7"'),
    (LIST, "[]", "a list of 1 to 2 items"),
    (LIST, "[1, 2, 3]", "a list of 1 to 2 items"),
    (LIST, "[10]", "x[0]: got 10"),
    (LIST, "1", "expected a list"),
    (MAP, "{A: 1}", "a key of x: got 'A'"),
    (MAP, "{a: 1, b: 2}", "a map with at most 1 keys"),
    (MAP, "{a: 10}", "x.a: got 10"),
    (MAP, "[]", "expected a map"),
    (AnyObject(), "[]", "expected a map"),
    (Cpus(), "0", "a number of CPUs from 0.001 to 16384, such as 4 or 500m"),
    (Cpus(), "16384001m", "a number of CPUs"),
    (Cpus(), "true", "a number of CPUs"),
    (Memory(), "16777215", "an amount of memory from 16Mi to 64Ti"),
    (Memory(), "65Ti", "an amount of memory"),
    (Memory(), "128m", "an amount of memory"),
    (ENV, "{A: true}", 'got true; expected text or a number ("true" and "" need quotes)'),
]


@pytest.mark.parametrize(("reader", "text", "value"), ACCEPTED)
def test_reader_and_schema_accept(reader: Reader[Any], text: str, value: Any) -> None:
    node = parse(text.encode(), "a")
    assert reader.read(node, "x") == value
    assert Draft7Validator(reader.schema()).is_valid(node.plain)


@pytest.mark.slow
@pytest.mark.parametrize(("reader", "text", "says"), REFUSED)
def test_reader_and_schema_refuse(reader: Reader[Any], text: str, says: str) -> None:
    node = parse(text.encode(), "a")
    with pytest.raises(SpecError) as caught:
        reader.read(node, "x")
    assert says in str(caught.value)
    # The schema leaves the values of variables and the limits of quantities to the reader.
    in_schema = reader is not ENV and "CPUs" not in says and "memory" not in says
    assert not in_schema or not Draft7Validator(reader.schema()).is_valid(node.plain)


@pytest.mark.parametrize(
    ("reader", "value", "written"),
    [(Cpus(), 1500, "1500m"), (Memory(), 1024, "1024"), (Cpus(), "2", "2"), (Cpus(), True, True)],
)
def test_quantity_is_written_in_its_smallest_unit(reader: Any, value: Any, written: Any) -> None:
    assert reader.write(value) == written


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        (RELEASE_NAME, ["a", "a-1", "a" * 47], ["1a", "a-", "A", "a.b", "a" * 48]),
        (GROUP_NAME, ["a" * 30], ["a" * 31]),
        (OBJECT_NAME, ["a.b-c", "1"], ["-a", "a.", "A"]),
        (LABEL_KEY, ["a", "A_b.c", "example.com/a", "a" * 63], ["", "/a", "a/", "a" * 64, "-a"]),
        (LABEL_VALUE, ["", "a.b", "a" * 63], ["-a", "a-", "a" * 64]),
        (RESOURCE, ["nvidia.com/gpu", "rdma/hca"], ["gpu", "/gpu", "Nvidia.com/gpu"]),
        (ABSOLUTE, ["/", "/a..b", "/a/b"], ["a", "/..", "/a/../b", "/a:b", "/a\n"]),
        (RELATIVE, ["a", "a/b", "..a"], ["/a", "..", "a/..", "a/../b"]),
        (INTERFACE, ["eth0", "a" * 15], ["a" * 16, "a b"]),
        (IMAGE, ["a", "localhost:5000/a/b-c"], ["a:1/", "A", "/a", "a//b"]),
        (DIGEST, ["sha256:" + "a1" * 32, "sha512:" + "0" * 128],
         ["sha256:" + "a" * 63, "sha512:" + "a" * 64, "md5:" + "a" * 64, "a" * 64,
          "sha256:" + "A" * 64]),
        (TAG, ["1.0", "_a"], ["", ".1", "a" * 129]),
    ],
)  # fmt: skip
def test_pattern_accepts_and_refuses(pattern: String, right: list[str], wrong: list[str]) -> None:
    validator = Draft7Validator(pattern.schema())
    for text in right:
        assert pattern.read(parse(f'"{text}"'.encode(), "a"), "x") == text
        assert validator.is_valid(text), text
    for text in wrong:
        quoted = '"' + text.replace("\n", "\\n") + '"'
        with pytest.raises(SpecError):
            pattern.read(parse(quoted.encode(), "a"), "x")
        assert not validator.is_valid(text), text
