"""Custom resources have the fields that the projects that own them define."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from devtools.checks.custom_resources import load
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


def check(resource: dict[str, Any]) -> None:
    """Raise ValidationError unless the spec is of the resource's own definition."""
    schema = load()[f"{resource['apiVersion']}/{resource['kind']}"]
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(resource["spec"], schema, jsonschema.Draft7Validator)


@pytest.mark.parametrize("case", RENDERED)
def test_rendered_resources_are_valid(case: str) -> None:
    kind, values = RENDERED[case]
    check(one(render(values), kind))


@pytest.mark.parametrize("kind", ["Application", "GitRepository", "HelmRelease"])
def test_resources_of_the_page_about_gitops_are_valid(kind: str) -> None:
    check(documented(kind))


def test_an_unknown_field_is_refused() -> None:
    group = one(render({"gang": "Volcano"}), "PodGroup")
    group["spec"]["minMembers"] = 3
    with pytest.raises(jsonschema.ValidationError, match="minMembers"):
        check(group)
