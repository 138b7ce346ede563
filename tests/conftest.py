"""The cluster that tests share: started when none runs, and then stopped at the end."""

from __future__ import annotations

import json
import re
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from tests.e2e.cluster import Namespace

# Whether this run started the shared cluster.
_STARTED = pytest.StashKey[bool]()
# Folders and files whose tests share what takes long to prepare: one process runs all of them.
SHARED_RESOURCES = {
    "tests/images/test_wheels.py": "wheels and defects of Horovod",
    "tests/images/test_mended_defects.py": "wheels and defects of Horovod",
    "tests/images/": "ranks of images",
    "tests/localkube/": "a second cluster",
    "tests/chart/test_kubernetes_versions.py": "renders of all cases",
    "tests/unit/hvd_pods/worker/agent/": "a worker that serves",
}
# Tests that take long and prepare nothing for others: any process runs any of them. The tests of a
# class, which share its fixtures, stay together.
APART = ("tests/e2e/", "tests/faults/")
# The order in which several processes begin tests: at the end are files of a few seconds each.
ORDER = (
    "tests/images/",
    "tests/localkube/",
    *APART,
    "tests/chart/",
    "tests/unit/hvdchart/calls/",
    "tests/unit/hvd_pods/worker/agent/",
    "tests/unit/hvd_pods/warm/",
    "tests/",
)


class Running:
    """Knows the tests that run in this process, or in those that it leads."""

    def __init__(self) -> None:
        self._tests: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tests.add(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._tests.discard(nodeid)

    def end(self, *_: object) -> None:
        """End as with Ctrl-C, and name the tests: one of them may hang."""
        pytest.exit(f"asked to end, in {', '.join(sorted(self._tests)) or 'no test'}", 143)


def pytest_configure(config: pytest.Config) -> None:
    """End with SIGTERM as with Ctrl-C: fixtures end the processes that they have started.

    `nohup` and a shell's `&` start pytest with signals ignored, and so would be every program that
    a test starts and sends these signals to.
    """
    running = Running()
    config.pluginmanager.register(running)
    signal.signal(signal.SIGTERM, running.end)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the cluster that this run started, in the process that leads the others."""
    workeroutput = getattr(session.config, "workeroutput", None)
    started = session.config.stash.get(_STARTED, False)
    if workeroutput is not None:
        workeroutput["started"] = started
    elif started:
        from devtools.localkube import cluster

        cluster.down()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the tests of faults have measured."""
    from tests.faults.report import rows, show

    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    measured = rows(reports)
    if measured:
        show(measured)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Learn from a test process that ends whether it started the cluster."""
    if getattr(node, "workeroutput", {}).get("started"):
        node.config.stash[_STARTED] = True


def group_of(nodeid: str) -> str:
    """The group whose tests run in one process: a shared resource, or the test's file.

    A test of APART is in a group of its own, or in that of its class.
    """
    # The identifier of a parameter may have any characters.
    owner = nodeid.partition("[")[0].rpartition("::")[0]
    file, _, of_class = owner.partition("::")
    for start, name in SHARED_RESOURCES.items():
        if file.startswith(start):
            return name
    if not file.startswith(APART):
        return file
    return owner if of_class else nodeid


class GroupedScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Hands the tests of one group to the same process, in ORDER.

    pytest-xdist's own groups do nothing with pytest 9.2: they write to an attribute that it lost.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupedScheduling | None:
    """Replace xdist's own scheduling by groups, which does nothing with pytest 9.2."""
    if config.getoption("dist") != "loadgroup":
        return None
    # xdist would begin with the groups that have the most tests.
    config.option.loadscopereorder = False
    return GroupedScheduling(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test that gets the cluster, also through another fixture."""
    if "kubeconfig" in getattr(item, "fixturenames", ()):
        item.add_marker("cluster")


def place_in_order(nodeid: str) -> int:
    """Where the test's folder is in ORDER."""
    return next(place for place, start in enumerate(ORDER) if nodeid.startswith(start))


# Last, so that no other plugin moves tests afterwards.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests into ORDER where several processes share them."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_in_order(item.nodeid))


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """The kubeconfig of a real Kubernetes, which is started unless it runs."""
    # Here, so that tests which need no cluster do not wait for the import.
    from devtools.localkube import cluster

    if not cluster.status().healthy:
        request.config.stash[_STARTED] = True
    return cluster.up()


def in_cluster(name: str, **versions: str) -> str:
    """Build one of our images, load it into the cluster, and return its reference.

    Does nothing where the image is here and in the cluster already.

    versions: those that replace the defaults, as `--set` does.
    """
    # Here, so that tests which need no image need nothing that builds one.
    from devtools.localkube.images import load
    from images.builder.build import build

    image = build(name, overrides=versions)
    load(image.reference)
    return image.reference


@pytest.fixture(scope="session")
def examples_image(kubeconfig: Path) -> str:
    """The examples on TensorFlow, in the cluster."""
    return in_cluster("examples")


@contextmanager
def new_namespace(name: str, kubeconfig: Path, image: str) -> Iterator[Namespace]:
    """A namespace that enforces Pod Security `restricted`, until the end of the block.

    Its name begins with `name`, with other characters than those of names replaced.
    """
    from tests.e2e.cluster import Namespace

    beginning = re.sub("[^a-z0-9]+", "-", name.lower())[:50].strip("-")
    # A namespace of an earlier run may still be terminating.
    own_name = f"{beginning}-{secrets.token_hex(4)}"
    made = Namespace(own_name, kubeconfig, image)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": own_name, "labels": labels},
    }
    made.kubectl("create", "--filename", "-", input=json.dumps(manifest))
    try:
        # Without it, pods and tokens are refused.
        made.kubectl("wait", "serviceaccount/default", "--for=create", "--timeout=180s")
        yield made
    finally:
        made.kubectl("delete", "namespace", own_name, "--wait=false")


# For a function outside of a class, this scope is that of the function.
@pytest.fixture(scope="class")
def namespace(
    kubeconfig: Path, examples_image: str, request: pytest.FixtureRequest
) -> Iterator[Namespace]:
    """A namespace for one test, or for all tests of a class.

    The tests of a class see the same releases, in the order of the file.
    """
    with new_namespace(request.node.name, kubeconfig, examples_image) as made:
        yield made
