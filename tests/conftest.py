"""The cluster that tests share: started when none runs, and then stopped at the end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from devtools.localkube import cluster
from tests.e2e.cluster import Namespace

_STARTED = "hvd/started"
# Files of tests -> what they share, and what one process must therefore have alone.
TOGETHER = {
    "tests/localkube/test_lifecycle.py": "a second cluster",
    "tests/localkube/test_workloads.py": "a second cluster",
    "tests/chart/test_kubernetes_versions.py": "renders of all cases",
    "tests/chart/test_scanner.py": "renders of all cases",
    "tests/images/pytorch/test_pytorch.py": "a run of two ranks",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--examples", default="examples", metavar="IMAGE",
        help="the image of images/versions.yaml that the tests on a cluster run in",
    )  # fmt: skip


def pytest_sessionstart(session: pytest.Session) -> None:
    if _leads(session):
        _remember(session, False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What a test's process started, the process that leads them all stops at the end."""
    if _leads(session) and session.config.cache and session.config.cache.get(_STARTED, False):
        cluster.down()


def _leads(session: pytest.Session) -> bool:
    """Whether this process hands out the tests, or runs them all, with or without pytest-xdist."""
    return not hasattr(session.config, "workerinput")


def _remember(session: pytest.Session, started: bool) -> None:
    # Without the provider the attribute itself is missing.
    cache: pytest.Cache | None = getattr(session.config, "cache", None)
    if cache is None:
        raise pytest.UsageError("these tests need pytest's cache provider")
    cache.set(_STARTED, started)


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Hands each test to a process that is free, and the files of one group to the same.

    pytest-xdist's own groups do nothing with pytest 9.2: they write to an attribute that it lost.
    """

    def _split_scope(self, nodeid: str) -> str:
        return TOGETHER.get(nodeid.partition("::")[0], nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """A real Kubernetes with the examples' image in it."""
    if not cluster.status().healthy:
        _remember(request.session, True)
    return cluster.up()


def in_cluster(name: str) -> str:
    """The reference of one of our images, which is in the cluster then."""
    # Here, so that tests which need no image need nothing that builds one.
    from devtools.images.build import build
    from devtools.localkube.images import load

    image = build(name)
    load(image.reference)
    return image.reference


@pytest.fixture(scope="session")
def examples_image(kubeconfig: Path, request: pytest.FixtureRequest) -> str:
    """The examples' image, in the cluster."""
    return in_cluster(str(request.config.getoption("--examples")))


@pytest.fixture(scope="session")
def older_image(kubeconfig: Path) -> str:
    """The examples on the TensorFlow that Horovod was released for, in the cluster."""
    return in_cluster("examples-2.15")


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
