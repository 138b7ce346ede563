"""The chart's values are described where a user looks them up."""

from __future__ import annotations

import pytest

from devtools.docs_gen import chart_docs


def test_each_value_is_described() -> None:
    assert [*chart_docs.undescribed(chart_docs.load_source())] == []


def test_value_without_a_description_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    source = chart_docs.load_source()
    properties = source["properties"]
    del properties["cleanup"]["description"]
    properties["staging"]["properties"]["retries"] = {"type": "integer"}
    properties["workerGroups"]["items"]["properties"]["rack"] = {"type": "string"}
    monkeypatch.setattr(chart_docs, "load_source", lambda: source)
    with pytest.raises(SystemExit, match="without a description: ") as error:
        chart_docs.main(["--check"])
    named = str(error.value).partition("description: ")[2].split(", ")
    assert named == ["workerGroups[].rack", "staging.retries", "cleanup"]


def test_value_without_a_hash_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    source = chart_docs.load_source()
    properties = source["properties"]
    del properties["launch"]["properties"]["failOnNaN"]["hash"]
    properties["staging"]["properties"]["nodes"]["hash"] = "sometimes"
    monkeypatch.setattr(chart_docs, "load_source", lambda: source)
    with pytest.raises(SystemExit, match=r"`hash` must be .*: launch.failOnNaN, staging.nodes$"):
        chart_docs.main(["--check"])


def test_descriptions_stand_behind_the_values_or_wrapped_above_them() -> None:
    long = " ".join(["word"] * 40)
    inner = {
        "short": {"default": [], "description": "brief"},
        "long": {"default": 1, "description": long},
    }
    source = {"properties": {"group": {"description": "a group", "properties": inner}}}
    assert chart_docs.render_values(source).splitlines()[1:] == [
        "group:  # a group",
        "  short: []  # brief",
        f"  # {' '.join(['word'] * 23)}",
        f"  # {' '.join(['word'] * 17)}",
        "  long: 1",
    ]
