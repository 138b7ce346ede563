"""The steps of horovod.prepare: each reads what an earlier one has added to .facts."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.chart.render import CHART

_TEMPLATES = CHART / "templates"
_DEFINITION = re.compile(r'{{-? define "horovod\.(\w+)" -?}}(.*?)(?={{-? define |\Z)', re.DOTALL)
_COMMENTED = re.compile(r'{{/\*((?:(?!\*/).)*)\*/}}\n{{-? define "horovod\.(\w+)"', re.DOTALL)
_INCLUDED = re.compile(r'include "horovod\.(\w+)"')
# The facts by any name that a definition gives them: $.root.facts, $facts.
_WRITTEN = re.compile(r'set [$.\w]*facts "(\w+)"')
_READ = re.compile(r"facts\.(\w+)")


@cache
def definitions() -> dict[str, str]:
    """The text of each definition, without comments."""
    texts = [path.read_text() for path in sorted(_TEMPLATES.rglob("*.tpl"))]
    texts = [re.sub(r"{{-? ?/\*.*?\*/ ?-?}}", "", text, flags=re.DOTALL) for text in texts]
    return {name: body for text in texts for name, body in _DEFINITION.findall(text)}


def steps() -> list[str]:
    """The definitions that horovod.prepare includes as a step, in their order."""
    included = re.findall(
        r'^ *{{- include "horovod\.(\w+)"', definitions()["prepare"], re.MULTILINE
    )
    # What restores defaults adds no field.
    return [name for name in included if name != "restoreDefaults"]


def reached_from(name: str) -> str:
    """The text of a definition and of all that it includes."""
    seen: dict[str, str] = {}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in seen and current in definitions():
            seen[current] = definitions()[current]
            waiting += _INCLUDED.findall(seen[current])
    return "\n".join(seen.values())


def added_by(step: str) -> list[str]:
    if step == "prepare":
        own = definitions()["prepare"]
        first = re.findall(r'"(\w+)"', re.findall(r'set \. "facts" \(dict (.*?)\) -}}', own)[0])
        return [*first, *_WRITTEN.findall(own)]
    return _WRITTEN.findall(reached_from(step))


def listed_by(step: str) -> list[str]:
    """The fields in the list of the comment before a definition."""
    texts = [path.read_text() for path in sorted(_TEMPLATES.rglob("*.tpl"))]
    comments = dict(pair[::-1] for text in texts for pair in _COMMENTED.findall(text))
    lines = comments.get(step, "").partition("Adds to .facts:\n")[2].splitlines()
    rows = (re.match(r"  (\w.*?)  ", line) for line in lines)
    return [field for row in rows if row for field in row[1].split(", ")]


@pytest.mark.parametrize("step", ["prepare", *steps()])
def test_comment_of_a_step_lists_what_it_adds(step: str) -> None:
    assert sorted(listed_by(step)) == sorted(added_by(step))


@pytest.mark.parametrize("step", steps())
def test_step_reads_what_it_or_an_earlier_one_has_added(step: str) -> None:
    order = ["prepare", *steps()]
    known = {field for each in order[: order.index(step) + 1] for field in added_by(each)}
    assert set(_READ.findall(reached_from(step))) - known == set()


def test_only_steps_add_facts() -> None:
    in_steps = sum(len(_WRITTEN.findall(reached_from(step))) for step in steps())
    everywhere = [
        field
        for path in _TEMPLATES.rglob("*.*")
        for field in _WRITTEN.findall(path.read_text())
        if path.name != "_prepare.tpl"
    ]
    assert in_steps == len(everywhere)
