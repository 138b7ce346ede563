"""A real API server accepts the rendered manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.cases import CASES
from tests.chart.render import Values, render
from tests.chart.trial import assert_accepted
from tests.support.namespace import Namespace

# What the oldest releases of Kubernetes lack, and the chart passes on.
NEWER: dict[str, Values] = {
    "user namespace": {"worker": {"podSpec": {"hostUsers": False}}},
    "resources of the pod": {"worker": {"podSpec": {"resources": {"limits": {"memory": "4Gi"}}}}},
    "volume of an image": {
        "volumes": [{"name": "set", "image": {"reference": "a/b:1", "pullPolicy": "IfNotPresent"}}],
        "volumeMounts": [{"name": "set", "mountPath": "/data", "readOnly": True}],
    },
}


@pytest.mark.parametrize("case", [*CASES, *NEWER])
def test_api_server_accepts_every_object(case: str, kubeconfig: Path) -> None:
    assert_accepted(Namespace("default", kubeconfig, ""), render({**CASES, **NEWER}[case]))
