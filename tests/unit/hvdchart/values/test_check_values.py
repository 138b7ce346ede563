"""Values that the chart would refuse are refused at their place in the spec."""

from __future__ import annotations

import pytest

from hvdchart.errors import SpecError
from hvdchart.values.check_values import checked_values
from tests.support.specs import NAMED, NODE, WITHOUT_IMAGE, plan_text, values_of_text


@pytest.mark.parametrize(
    ("text", "place", "names"),
    [
        ("", "1:1", "image"),
        ("{image: {tag: x}}", "5:17", "values.image"),
        ("{worker: {image: {repository: a}}}", "1:1", "image"),
        ("{workerGroups: [{name: a}], master: {image: {repository: a}}}", "1:1", "image"),
        (
            "{worker: {image: {repository: a}}, master: {image: {repository: a}}, "
            "tensorboard: {enabled: true}}",
            "1:1",
            "image",
        ),
        ("{worker: {nmbr: 2}}", "6:19", "'number'"),
        ("{wrkr: {}}", "6:10", "'worker'"),
        ("{worker: {number: x}}", "6:27", "integer"),
        ("{master: {resources: {limits: {cpu: abc}}}}", "6:45", 'got "abc"'),
        ("{shm: {sizeLimit: abc}}", "6:27", "8Gi"),
        ("{image: {digest: abc}}", "6:26", "sha256:"),
        ("{worker: null}", "6:18", "null"),
        ("{fullnameOverride: a.b}", "6:28", "a.b"),
        ("{code: {files: {a/b: x}}}", "6:25", "'a/b'"),
        ("{nameOverride: unet}", "6:10", "nameOverride"),
        ('{"a\\nb\\u200b": 1}', "6:10", r"values.a\nb\u200b: "),
    ],
)
def test_refused_value_is_reported_at_its_place_in_the_spec(
    text: str, place: str, names: str
) -> None:
    head = WITHOUT_IMAGE if names.endswith("image") else NAMED
    with pytest.raises(SpecError) as caught:
        checked_values(plan_text(f"{head}{NODE}values: {text or '{}'}\n"))
    assert caught.value.place == f"a.yaml:{place}", str(caught.value)
    assert names in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (
            "{worker: {number: 0, slots: x, nmbr: 1, sprd: 2}, wrkr: 3}",
            [
                "values.wrkr",
                "values.worker.nmbr",
                "values.worker.sprd",
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
        values_of_text(f"{NODE}values: {text}\n")
    assert [error.path for error in caught.value.errors] == paths


def limits(text: str) -> str:
    """Resources whose limit of memory is below the request."""
    return f"resources: {{requests: {{memory: 2Gi}}, limits: {{memory: {text}}}}}"


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (f"{{worker: {{{limits('1Gi')}}}}}", ["values.worker.resources.limits.memory"]),
        (f"{{worker: {{{limits('2147483648')}}}}}", []),
        (f"{{master: {{{limits('1.5Gi')}}}}}", ["values.master.resources.limits.memory"]),
        (
            f"{{tensorboard: {{enabled: true, {limits('1e9')}}}}}",
            ["values.tensorboard.resources.limits.memory"],
        ),
        (f"{{tensorboard: {{{limits('1e9')}}}}}", []),
        (
            f"{{workerGroups: [{{name: a, {limits('1Gi')}}}]}}",
            ["values.workerGroups[0].resources.limits.memory"],
        ),
        # What a group inherits is the fault of the key that was written.
        (
            "{worker: {resources: {limits: {cpu: 100m}}}, workerGroups: [{name: a, resources: "
            "{requests: {cpu: 1}}}]}",
            ["values.worker.resources.limits.cpu"],
        ),
        (
            "{master: {resources: {requests: {cpu: 2}, limits: {cpu: 1, a.b/c: 1}}}}",
            ["values.master.resources.limits.cpu"],
        ),
    ],
)
def test_limit_below_the_request_is_refused(text: str, paths: list[str]) -> None:
    """Kubernetes would refuse the pods."""
    found: list[str] = []
    try:
        values_of_text(f"{NODE}values: {text}\n")
    except SpecError as error:
        found = [each.path for each in error.errors]
    assert found == paths
