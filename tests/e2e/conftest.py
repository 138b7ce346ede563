"""What tests need that reach for their node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devtools.images.build import build
from devtools.localkube.images import load
from tests.e2e.cluster import Namespace


@pytest.fixture
def privileged(namespace: Namespace) -> Namespace:
    """A namespace that admits what Pod Security `restricted` does not."""
    level = "pod-security.kubernetes.io/enforce=privileged"
    namespace.kubectl("label", "namespace", namespace.name, "--overwrite", level)
    return namespace


@pytest.fixture
def node_folder(tmp_path: Path) -> Path:
    """A directory of the node that the pods' user may write: the local node shares our disk."""
    os.chown(tmp_path, 1000, 1000)
    return tmp_path


@pytest.fixture(scope="session")
def foreign_images(kubeconfig: Path) -> dict[str, str]:
    """References of images as others build them, in the cluster, by their names."""
    versions = Path(__file__).with_name("images") / "versions.yaml"
    references = {name: build(name, versions=versions).reference for name in ("plain", "public")}
    for reference in references.values():
        load(reference)
    return references
