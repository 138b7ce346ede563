"""A training to disturb."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.localkube import cluster
from devtools.localkube.images import load_images
from devtools.localkube.instance import Instance
from tests.faults.report import PROPERTY, Row
from tests.faults.training import Place, Training
from tests.support.namespace import Namespace
from tests.support.volumes import claimed_folder


@pytest.fixture
def place(namespace: Namespace, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place for the test's trainings. What they measure is shown at the end."""
    folder = Path(tempfile.mkdtemp(prefix="hvd-faults-"))
    folder.chmod(0o777)
    mark = request.node.get_closest_marker("fault")

    def report(measured: Row) -> None:
        row = {"fault": mark.args[0] if mark else request.node.name, **measured}
        request.node.user_properties.append((PROPERTY, row))
        print(row)

    with claimed_folder(namespace, "output", folder):
        yield Place(namespace, folder, report)
    shutil.rmtree(folder)


@pytest.fixture
def training(place: Place) -> Training:
    """The training of the release `hvd`."""
    return Training(*place)


@pytest.fixture(scope="session")
def removed_node() -> Iterator[None]:
    """No second node after the tests."""
    yield
    cluster.remove_node(number=2)


@pytest.fixture
def second_node(examples_image: str, removed_node: None) -> Instance:
    """A second node of the cluster, with the image."""
    second = cluster.add_node(number=2)
    load_images(examples_image, second)
    return second
