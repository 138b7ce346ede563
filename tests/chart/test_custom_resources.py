"""Custom resources have the fields that the projects that own them define."""

from __future__ import annotations

from typing import Any

import pytest

from devtools.checks.schemas import load_custom_resources
from tests.chart.render import Values, one, render
from tests.chart.test_gitops import documented

RENDERED: dict[str, tuple[str, Values]] = {
    "Volcano": (
        "PodGroup",
        {
            "gang": "Volcano",
            "queueName": "team",
            "priorityClassName": "high",
            "worker": {"resources": {"limits": {"cpu": "1500m", "nvidia.com/gpu": 1}}},
        },
    ),
    "SchedulerPlugins": ("PodGroup", {"gang": "SchedulerPlugins"}),
    "Prometheus": (
        "PodMonitor",
        {"metrics": {"enabled": True, "podMonitor": {"interval": "15s", "labels": {"a": "b"}}}},
    ),
}


def find_problems(resource: dict[str, Any]) -> list[str]:
    """Return where the spec differs from the resource's own definition."""
    # Here, since the import takes seconds.
    import jsonschema

    schema = load_custom_resources()[f"{resource['apiVersion']}/{resource['kind']}"]
    jsonschema.Draft7Validator.check_schema(schema)
    problems = jsonschema.Draft7Validator(schema).iter_errors(resource["spec"])
    return [problem.message for problem in problems]


@pytest.mark.parametrize("case", RENDERED)
def test_rendered_resources_are_valid(case: str) -> None:
    kind, values = RENDERED[case]
    assert find_problems(one(render(values), kind)) == []


@pytest.mark.parametrize("kind", ["Application", "GitRepository", "HelmRelease"])
def test_resources_of_the_page_about_gitops_are_valid(kind: str) -> None:
    assert find_problems(documented(kind)) == []


def test_an_unknown_field_is_refused() -> None:
    group = one(render({"gang": "Volcano"}), "PodGroup")
    group["spec"]["minMembers"] = 3
    (problem,) = find_problems(group)
    assert "minMembers" in problem
