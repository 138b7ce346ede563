"""Custom resources of the chart and of docs/gitops.md are valid, and the page fits the chart."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from devtools.checks.schemas import load_custom_resources
from tests.chart.render import CHART, Values, of_kind, one, render

PAGE = CHART.parents[1] / "docs" / "gitops.md"


def documented(kind: str, number: int = 0) -> dict[str, Any]:
    """Return the page's first object of a kind, or a later one, which may be a part of one."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    documents = (document for block in blocks for document in YAML(typ="safe").load_all(block))
    found: list[dict[str, Any]] = [each for each in documents if each.get("kind") == kind]
    return found[number]


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
        ("PodGroup", {"gang": "SchedulerPlugins"}),
        ("PodMonitor", {"metrics": {"enabled": True, "podMonitor": MONITOR}}),
        ("PrometheusRule", {"metrics": {"enabled": True, "rules": {"labels": {"a": "b"}}}}),
    ],
)
def test_rendered_resources_are_valid(kind: str, values: Values) -> None:
    assert find_problems(one(render(values), kind)) == []


@pytest.mark.parametrize("kind", ["Application", "GitRepository", "HelmRelease"])
def test_resources_of_the_page_about_gitops_are_valid(kind: str) -> None:
    assert find_problems(documented(kind)) == []


def test_the_chart_accepts_the_values_of_the_page() -> None:
    application = documented("Application")["spec"]
    release = documented("HelmRelease")["spec"]
    for values in (application["source"]["helm"]["valuesObject"], release["values"]):
        (group,) = of_kind(render(values, release="resnet50"), "StatefulSet")
        assert group["metadata"]["name"] == "resnet50-worker"
