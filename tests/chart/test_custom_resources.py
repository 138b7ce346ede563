"""Custom resources of the chart and of docs/gitops.md are valid, and the page fits the chart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.api_schemas import load_custom_resources
from tests.chart.render import Values, one, render
from tests.support.gitops import documented_object

VOLCANO: Values = {
    "gang": "Volcano",
    "queueName": "team",
    "priorityClassName": "high",
    "worker": {"resources": {"limits": {"cpu": "1500m", "nvidia.com/gpu": 1}}},
}
MONITOR: Values = {"interval": "15s", "labels": {"a": "b"}}


def find_problems(resource: dict[str, Any]) -> list[str]:
    """Return where the spec differs from the resource's own definition."""
    # Here, since the import takes seconds.
    import jsonschema

    schema = load_custom_resources()[f"{resource['apiVersion']}/{resource['kind']}"]
    jsonschema.Draft7Validator.check_schema(schema)
    problems = jsonschema.Draft7Validator(schema).iter_errors(resource["spec"])
    return [problem.message for problem in problems]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("PodGroup", VOLCANO),
        ("PodMonitor", {"metrics": {"enabled": True, "podMonitor": MONITOR}}),
        ("PrometheusRule", {"metrics": {"enabled": True, "rules": {"labels": {"a": "b"}}}}),
    ],
)
def test_rendered_resources_are_valid(kind: str, values: Values) -> None:
    assert find_problems(one(render(values), kind)) == []


@pytest.mark.parametrize("kind", ["Application", "GitRepository", "HelmRelease"])
def test_resources_of_the_page_about_gitops_are_valid(kind: str) -> None:
    assert find_problems(documented_object(kind)) == []


@pytest.mark.parametrize(
    "values",
    [
        documented_object("Application")["spec"]["source"]["helm"]["valuesObject"],
        documented_object("HelmRelease")["spec"]["values"],
    ],
    ids=["Application", "HelmRelease"],
)
def test_the_chart_accepts_the_values_of_the_page(values: Values) -> None:
    group = one(render(values, release="resnet50"), "StatefulSet")
    assert group["metadata"]["name"] == "resnet50-worker"
