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
    "given",
    [
        "worker: {image: {repository: a}}, master: {image: {repository: b}}",
        "workerGroups: [{name: a, image: {repository: a}}], master: {image: {repository: a}}",
        "workerGroups: [{name: a}, {name: b}], worker: {image: {repository: a}}, "
        "master: {image: {repository: a}}",
    ],
)
def test_image_may_come_from_values(given: str) -> None:
    assert checked_values(plan_text(WITHOUT_IMAGE + NODE + f"values: {{{given}}}\n"))


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


# Each is what the chart's templates refuse: tests/chart/test_launch_options.py renders them.
REFUSED_LAUNCHES = [
    ('{launch: {options: [-v, -np, "4"]}}', "values.launch.options[1]", "worker.number"),
    ("{launch: {options: [--map-by, core]}}", "values.launch.options[0]", "binding.to is core"),
    (
        "{network: {interface: eth1}, launch: {mode: elastic, options: [--network-interfaces=a]}}",
        "values.launch.options[0]",
        "network.interface is eth1",
    ),
    ("{launch: {binding: {to: none}}}", "values.launch.binding.to", "coresPerRank is 4"),
    ("{launch: {mode: custom}}", "values.launch.mode", "no argument of master.args"),
    ('{master: {args: ["$(LAUNCH)"]}}', "values.master.args", "launch.mode is mpirun"),
    ("{launch: {elastic: {minRanks: 1}}}", "values.launch.elastic", "launch.mode is mpirun"),
    (
        "{launch: {mode: elastic, elastic: {minRanks: 2}}}",
        "values.launch.elastic",
        "the workers have 1 ranks (minRanks: 2, maxRanks: none)",
    ),
    ("{launch: {mode: elastic}, hostNetwork: true}", "values.hostNetwork", "Gloo needs"),
    (
        "{launch: {mode: elastic}, workerGroups: [{name: a, spares: 2}]}",
        "values.workerGroups[0].spares",
        "2, but launch.mode is elastic",
    ),
]


@pytest.mark.parametrize(("text", "path", "says"), REFUSED_LAUNCHES)
def test_launch_that_the_chart_refuses_is_refused_in_the_spec(
    text: str, path: str, says: str
) -> None:
    with pytest.raises(SpecError) as caught:
        values(NODE + f"values: {text}\n")
    assert caught.value.path == path, str(caught.value)
    assert caught.value.place.startswith("a.yaml:6:")
    assert says in str(caught.value)


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


def test_options_that_values_make_wrong_are_refused_at_their_own_place() -> None:
    text = NODE + "launch: {mode: horovodrun, options: [--network-interfaces=a]}\n"
    with pytest.raises(SpecError) as caught:
        values(text + "values: {network: {interface: eth1}}\n")
    assert (caught.value.place, caught.value.path) == ("a.yaml:6:38", "launch.options[0]")


@pytest.mark.parametrize(
    "text",
    [
        "{launch: {binding: {to: none, coresPerRank: null}, options: [--map-by, core]}}",
        "{worker: {number: 2, slots: 3}, "
        "launch: {mode: elastic, elastic: {minRanks: 6, maxRanks: 6}}}",
        "{workerGroups: [{name: a, number: 2, slots: 2}], launch: {mode: elastic, "
        "elastic: {minRanks: 4}}}",
    ],
)
def test_launch_that_the_chart_takes_is_rendered(text: str) -> None:
    assert values(NODE + f"values: {text}\n")
