"""Pods of the probe, the program of these tests."""

from __future__ import annotations

from typing import Any

PROBE_IMAGE = "docker.io/localkube/probe:1"


def probe_pod(name: str, container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod with one container of the probe's image."""
    containers = [{"name": "probe", "image": PROBE_IMAGE, **container}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    return {**pod, "spec": {"containers": containers, **spec}}
