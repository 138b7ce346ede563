"""Values that the chart would refuse are refused at their place in the spec."""

from __future__ import annotations

import pytest

from hvdchart.errors import SpecError
from hvdchart.values.check import checked_values
from tests.unit.hvdchart.values.test_values import HEAD, NODE, WITHOUT_IMAGE, plan_text, values


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("", "1:1", "image: no image for some pods"),
        ("{image: {tag: x}}", "5:17", "values.image: no image for some pods"),
        ("{worker: {image: {repository: a}}}", "1:1", "image: no image for some pods"),
        ("{workerGroups: [{name: a}], master: {image: {repository: a}}}", "1:1", "no image for"),
        ("{worker: {nmber: 2}}", "6:19", "did you mean 'number'?); expected a key of the chart"),
        ("{wrker: {}}", "6:10", "no key 'wrker' here (did you mean 'worker'?)"),
        ("{worker: {number: x}}", "6:27", "integer"),
        ("{master: {resources: {limits: {cpu: abc}}}}", "6:45", "abc"),
        ("{worker: null}", "6:18", "null is not of type"),
        ('{"a\\nb\\u200b": 1}', "6:10", r"values.a\nb\u200b: the chart has no key"),
    ],
)
def test_refused_value_is_reported_at_its_place_in_the_spec(
    text: str, place: str, says: str
) -> None:
    head = WITHOUT_IMAGE if "no image" in says else HEAD
    with pytest.raises(SpecError) as caught:
        checked_values(plan_text(f"{head}{NODE}values: {text or '{}'}\n"))
    assert caught.value.place == f"a.yaml:{place}", str(caught.value)
    assert says in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (
            "{worker: {number: 0, slots: x, nmber: 1, spred: 2}, wrker: 3}",
            [
                "values.wrker",
                "values.worker.nmber",
                "values.worker.spred",
                "values.worker.number",
                "values.worker.slots",
            ],
        ),
        (
            "{worker: {number: null, slots: null}}",
            ["values.worker.number", "values.worker.slots"],
        ),
    ],
    ids=["wrong values", "nulls"],
)
def test_all_values_that_the_chart_refuses_are_reported_at_once(
    text: str, paths: list[str]
) -> None:
    with pytest.raises(SpecError) as caught:
        values(f"{NODE}values: {text}\n")
    assert [error.path for error in caught.value.errors] == paths
