"""Values and places at paths of keys and indices."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.spec.paths import dotted, nearest_node, place_of, value_at
from hvdchart.spec.yaml_tree import parse

ROOT = parse(b"""\
a: [1, {b: 2}]
c: 3
""", "x")  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (["a", 0], 1, "x:1:5"),
        (["a", 1, "b"], 2, "x:1:12"),
        # What is missing is placed where the way to it ends.
        (["a", 2], None, "x:1:4"),
        (["a", "c"], None, "x:1:4"),
        (["c", "d"], None, "x:2:4"),
        (["d", "c"], None, "x:1:1"),
    ],
)
def test_value_and_place_of_a_path(path: list[str | int], value: Any, place: str) -> None:
    assert value_at(ROOT.plain, path) == value
    assert str(place_of(ROOT, path)) == place
    assert nearest_node(ROOT, path).place == place_of(ROOT, path)


def test_path_in_messages() -> None:
    assert dotted(["nodes", 0, "count"]) == "nodes[0].count"
