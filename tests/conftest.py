"""The cluster that tests share: started when none runs, and then stopped at the end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.namespace import Namespace

pytest_plugins = ["tests.support.scheduling"]
# Whether this run started the shared cluster.
_STARTED = pytest.StashKey[bool]()


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
    from tests.faults.report import measured_rows, publish_table

    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    measured = measured_rows(reports)
    if measured:
        publish_table(measured)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Learn from a test process that ends whether it started the cluster."""
    if getattr(node, "workeroutput", {}).get("started"):
        node.config.stash[_STARTED] = True


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test that gets the cluster, also through another fixture."""
    if "kubeconfig" in getattr(item, "fixturenames", ()):
        item.add_marker("cluster")


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """The kubeconfig of a real Kubernetes, which is started unless it runs."""
    # Here, so that tests which need no cluster do not wait for the import.
    from devtools.localkube import cluster

    if not cluster.status().is_healthy:
        request.config.stash[_STARTED] = True
    return cluster.up()


@pytest.fixture(scope="session")
def examples_image(kubeconfig: Path) -> str:
    """The examples on TensorFlow, in the cluster."""
    # As above: this imports what builds images.
    from tests.support.images import in_cluster

    return in_cluster("examples")


# For a function outside of a class, this scope is that of the function.
@pytest.fixture(scope="class")
def namespace(
    kubeconfig: Path, examples_image: str, request: pytest.FixtureRequest
) -> Iterator[Namespace]:
    """A namespace for one test, or for all tests of a class.

    The tests of a class see the same releases, in the order of the file.
    """
    from tests.support.namespace import new_namespace

    with new_namespace(request.node.name, kubeconfig, examples_image) as made:
        yield made
