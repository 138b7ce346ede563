"""What tests need that reach for their node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devtools.localkube.images import load_images
from images.builder.build import build_image
from tests.support.images import in_cluster
from tests.support.namespace import Namespace, image_values


@pytest.fixture(scope="class")
def privileged(namespace: Namespace) -> Namespace:
    """The namespace, which from now on admits what Pod Security `restricted` does not."""
    level = "pod-security.kubernetes.io/enforce=privileged"
    namespace.kubectl("label", "namespace", namespace.name, "--overwrite", level)
    return namespace


@pytest.fixture(scope="class")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of the node that the pods' user may write: the local node shares our disk.

    As the namespace, it is for one test, or for all of a class.
    """
    folder = tmp_path_factory.mktemp("node")
    os.chown(folder, 1000, 1000)
    return folder


@pytest.fixture(scope="session")
def foreign_images(kubeconfig: Path) -> dict[str, str]:
    """References of images as others build them, in the cluster, by their names."""
    return {name: _loaded(name) for name in ("plain", "public", "empty")}


@pytest.fixture(scope="session")
def pytorch_image(kubeconfig: Path) -> dict[str, str]:
    """The examples on PyTorch, in the cluster, as values."""
    return image_values(in_cluster("examples-pytorch"))


@pytest.fixture(scope="session")
def python_image(kubeconfig: Path) -> dict[str, str]:
    """An image in the cluster of Python alone, with a user of its own that has no home folder."""
    return image_values(_loaded("python"))


@pytest.fixture(scope="session")
def wheels_image(kubeconfig: Path) -> dict[str, str]:
    """An image in the cluster of Python, JAX, NumPy and scikit-learn alone."""
    return image_values(_loaded("wheels"))


def _loaded(name: str) -> str:
    versions = Path(__file__).with_name("images") / "versions.yaml"
    reference = build_image(name, versions=versions).reference
    load_images(reference)
    return reference
