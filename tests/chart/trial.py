"""Applies rendered objects to a real API server on trial: names, fields, types, Pod Security."""

from __future__ import annotations

import json

from tests.chart.render import Manifest
from tests.support.namespace import Namespace


def assert_accepted(server: Namespace, manifests: list[Manifest]) -> None:
    """All objects are applied on the server, as Helm 4 does: that refuses a name twice in a list.

    The objects are changed.
    """
    for manifest in manifests:
        _prepare(manifest)
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


def _prepare(manifest: Manifest) -> None:
    """Let an object be in the namespace of the trial, which creates nothing that it needs."""
    manifest["metadata"].pop("namespace", None)
    if manifest["kind"] == "Pod":
        manifest["spec"]["serviceAccountName"] = "default"
        manifest["spec"].pop("priorityClassName", None)
