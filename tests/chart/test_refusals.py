"""The chart refuses values that contradict each other, and names each key and the remedy."""

from __future__ import annotations

import re

import pytest

from devtools.common.repository import CHART
from hvdchart.chart_files import read_data
from hvdchart.spec.overlays import merge_trees
from tests.chart.cases import case_id
from tests.chart.refusals.subjects import SUBJECTS
from tests.chart.render import Values, helm_template, refusal, render

# The message of horovod.refuse.
MESSAGE = re.compile(r"execution error at \([^)]*\): (?P<what>.*?): ")
# The list of the checks, and those of objects in the cluster.
FILES_WITHOUT_CONTRADICTIONS = {"checks", "objects"}


def find_refused(message: str) -> str:
    """Return what a message of horovod.refuse refuses, without the reason and the remedy."""
    match = MESSAGE.search(message)
    assert match, message
    return match["what"]


def missing(names: list[str], text: str) -> list[str]:
    """Return the names that are not in the text, or only within longer ones."""
    patterns = {name: rf"(?<![\w.]){re.escape(name)}(?![\w.\[])" for name in names}
    return [name for name, pattern in patterns.items() if not re.search(pattern, text)]


def keys_of(values: Values) -> set[str]:
    """Return the names of the values, without those of the maps around them."""
    inner = [
        keys_of(value) if isinstance(value, dict) and value else {key}
        for key, value in values.items()
    ]
    return set().union(*inner)


each_contradiction = pytest.mark.parametrize(
    ("values", "names", "remedy"),
    [contradiction for subject in SUBJECTS.values() for contradiction in subject],
    ids=case_id,
)


@each_contradiction
def test_contradiction_names_both_keys(values: Values, names: list[str], remedy: Values) -> None:
    what = find_refused(refusal(values))
    assert missing(names, what) == [], what


@each_contradiction
def test_remedy_is_in_the_message_and_works(
    values: Values, names: list[str], remedy: Values
) -> None:
    message = refusal(values)
    assert [key for key in keys_of(remedy) if key.removesuffix("s") not in message] == []
    render(merge_trees(values, remedy, lambda _, value: value is None))


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_refusal_names_a_place_among_the_checks(helm: str) -> None:
    """Helm names the file that it renders first, whichever file has the check."""
    done = helm_template({"worker": {"number": 2, "minimum": 3}}, helm=helm)
    assert re.findall(r"[(]horovod/templates/(\w+)/", done.stderr) == ["checks"]


def test_code_that_does_not_fit_is_refused() -> None:
    most = int(read_data("resources.json")["codeBytes"])
    files = {"train.py": "x" * (most + 1)}
    assert f"use at most {most}" in refusal({"code": {"files": files}})


def test_each_file_of_checks_has_contradictions_that_it_refuses() -> None:
    files = {file.stem.removeprefix("_") for file in (CHART / "templates/checks").glob("*.tpl")}
    assert set(SUBJECTS) == files - FILES_WITHOUT_CONTRADICTIONS | {"env"}
    assert [subject for subject, contradictions in SUBJECTS.items() if not contradictions] == []
