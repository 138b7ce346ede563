"""Values that the chart would refuse are refused at their place in the spec."""

from __future__ import annotations

import pytest

from hvdchart.errors import SpecError
from hvdchart.values.check import checked_values
from tests.unit.hvdchart.values.test_values import NODE, WITHOUT_IMAGE, plan_text, values


@pytest.mark.parametrize(
    ("rest", "place", "path"),
    [
        ("", "a.yaml:1:1", "image"),
        ("values: {image: {tag: x}}\n", "a.yaml:5:17", "values.image"),
        ("values: {worker: {image: {repository: a}}}\n", "a.yaml:1:1", "image"),
        ("values: {workerGroups: [{name: a, image: {repository: a}}, {name: b}],"
         " master: {image: {repository: a}}}\n", "a.yaml:1:1", "image"),
    ],
)  # fmt: skip
def test_values_without_an_image_for_all_pods_are_refused(rest: str, place: str, path: str) -> None:
    plan = plan_text(WITHOUT_IMAGE + NODE + rest)
    with pytest.raises(SpecError, match="no image for some pods") as caught:
        checked_values(plan)
    assert (caught.value.place, caught.value.path) == (place, path)


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("{worker: {nmber: 2}}", "6:19", "did you mean 'number'?); expected a key of the chart"),
        ("{wrker: {}}", "6:10", "no key 'wrker' here (did you mean 'worker'?)"),
        ("{worker: {number: x}}", "6:27", "integer"),
        ("{worker: null}", "6:18", "null deletes a value that the chart needs"),
        ('{"a\\nb\\u200b": 1}', "6:10", r"values.a\nb\u200b: the chart has no key"),
    ],
)
def test_refused_value_is_reported_at_its_place_in_the_spec(
    text: str, place: str, says: str
) -> None:
    with pytest.raises(SpecError) as caught:
        values(NODE + f"values: {text}\n")
    assert caught.value.place == f"a.yaml:{place}", str(caught.value)
    assert says in str(caught.value)
    assert str(caught.value).isprintable()


def test_all_values_that_the_chart_refuses_are_reported_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        values(NODE + "values: {worker: {number: 0, slots: x, nmber: 1, spred: 2}, wrker: 3}\n")
    assert [error.path for error in caught.value.errors] == [
        "values.wrker", "values.worker.nmber", "values.worker.spred", "values.worker.number",
        "values.worker.slots",
    ]  # fmt: skip
    with pytest.raises(SpecError) as caught:
        values(NODE + "values: {worker: {number: null, slots: null}}\n")
    assert len(caught.value.errors) == 2
