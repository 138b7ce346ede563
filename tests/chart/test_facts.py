"""What hvdchart knows of the chart's rules is what the chart does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from devtools.docs_gen.chart_docs import load_source
from hvdchart.chart_facts import has_policy, is_in_kueue
from hvdchart.chart_files import most_hosts
from hvdchart.cli.options import MOST_WORKERS
from tests.chart.render import Values, of_kind, render

CASES: list[Values] = [
    {},
    {"hostNetwork": True},
    {"networkPolicy": {"enabled": False}},
    {"queueName": "q"},
    {"queueName": "q", "gang": "Volcano"},
    {"gang": "Volcano"},
]


@pytest.mark.parametrize("values", CASES, ids=json.dumps)
def test_hvdchart_knows_what_the_chart_derives(values: Values) -> None:
    rendered = render({**values, "tensorboard": {"enabled": False}})
    assert has_policy(values) == bool(of_kind(rendered, "NetworkPolicy"))
    assert is_in_kueue(values) == ("kueue.x-k8s.io/" in json.dumps(rendered))


def descriptions(node: Any) -> Iterator[dict[str, Any]]:
    """The keys of the schema that count workers, at any depth."""
    if isinstance(node, dict):
        if re.search(r"number of workers?|worker pods", str(node.get("description", ""))):
            yield node
        for child in node.values():
            yield from descriptions(child)


def test_schema_allows_as_many_workers_as_the_chart_takes() -> None:
    counts = [node for node in descriptions(load_source()) if "maximum" in node]
    assert len(counts) >= 3
    assert {node["maximum"] for node in counts} == {most_hosts()}
    assert most_hosts() == MOST_WORKERS
