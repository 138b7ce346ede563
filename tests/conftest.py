"""The cluster that tests share: started when none runs, and then stopped at the end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from localkube import cluster
from tests.e2e.cluster import Namespace


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[Path]:
    """A real Kubernetes with the examples' image in it."""
    was_up = cluster.status().healthy
    path = cluster.up()
    yield path
    if not was_up:
        cluster.down()


@pytest.fixture(scope="session")
def examples_image(kubeconfig: Path) -> str:
    """The examples' image, in the cluster."""
    # Here, so that tests which need no image need nothing that builds one.
    from images.build import build
    from localkube.images import load

    image = build("examples")
    load(image.reference)
    return image.reference


@pytest.fixture
def namespace(
    kubeconfig: Path, examples_image: str, request: pytest.FixtureRequest
) -> Iterator[Namespace]:
    """A namespace for one test, which enforces Pod Security `restricted`."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:50].strip("-")
    made = Namespace(name, kubeconfig, examples_image)
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    made.kubectl("apply", "--filename", "-", input=json.dumps(manifest))
    yield made
    made.kubectl("delete", "namespace", name, "--wait=false")
