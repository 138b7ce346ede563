"""A real API server accepts the rendered manifests: names, fields, types, Pod Security.

They are applied on the server, as Helm 4 does: that refuses a list that has a name twice.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chart.cases import CASES
from tests.chart.render import Values, render
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
    server = Namespace("default", kubeconfig, "")
    manifests = render({**CASES, **NEWER}[case])
    for manifest in manifests:
        manifest["metadata"].pop("namespace", None)
        if manifest["kind"] == "Pod":
            # Its own service account does not exist, because a dry run creates nothing.
            manifest["spec"]["serviceAccountName"] = "default"
    answer = server.kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "--filename",
        "-",
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}),
    )
    assert answer.count("server dry run") == answer.count("\n") == len(manifests)
