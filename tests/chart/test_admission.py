"""The policy of docs/administrators.md limits the workers on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

from devtools.common.errors import DevtoolsError
from devtools.common.markdown import code_blocks
from devtools.common.repository import DOCS
from devtools.common.waiting import PROGRAM_PAUSE, wait_until
from tests.chart.render import one, render
from tests.support.namespace import Namespace

PAGE = DOCS / "administrators.md"
LABEL = "example.com/most-workers"


@pytest.fixture
def limited(place: Namespace) -> Iterator[Namespace]:
    """A namespace that allows two workers, with a StatefulSet of the chart's that has none."""
    policy, binding = (
        document
        for block in code_blocks(PAGE, "yaml")
        for document in YAML(typ="safe").load_all(block)
        if document.get("kind", "").startswith("ValidatingAdmissionPolicy")
    )
    # Both are for the whole cluster, which other tests use.
    name = policy["metadata"]["name"] = binding["metadata"]["name"] = place.name
    binding["spec"]["policyName"] = name
    workers: dict[str, Any] = one(render({}), "StatefulSet")
    workers["spec"]["replicas"] = 0
    workers["metadata"].pop("namespace", None)
    place.apply(workers)
    place.kubectl("label", "namespace", place.name, f"{LABEL}=2")
    try:
        place.apply(policy)
        place.apply(binding)
        yield place
    finally:
        kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding"
        place.kubectl("delete", kinds, name, "--wait=false")


def scaled(place: Namespace, number: int) -> str:
    """What the API server says of a number of workers; empty where it accepts it."""
    name = one(render({}), "StatefulSet")["metadata"]["name"]
    try:
        place.kubectl("scale", "statefulset", name, f"--replicas={number}", "--dry-run=server")
    except DevtoolsError as refused:
        return str(refused)
    return ""


def test_more_workers_than_the_namespace_allows_are_refused(limited: Namespace) -> None:
    # The API server compiles a policy after it has accepted it.
    wait_until(lambda: scaled(limited, 3), 60, "the policy is in force", PROGRAM_PAUSE)
    assert "this namespace allows 2 workers" in scaled(limited, 100_000)
    assert not scaled(limited, 2)
    assert not scaled(limited, 0)
