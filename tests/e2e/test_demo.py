"""The demonstration, `make demo`, as a stranger would run it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from devtools.common.repository import ROOT
from devtools.localkube.instance import current_instance
from tests.support.namespace import Namespace


def demo() -> str:
    """Run `make demo` and return all it printed."""
    done = subprocess.run(
        ["make", "demo"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        # It may wait for the images that another test builds, one after another.
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@dataclass(frozen=True)
class Demo:
    """What the demo has printed, and the UIDs of its namespace and of the cluster's node."""

    printed: str
    uids: tuple[str, str]


def uids(in_demo: Namespace) -> tuple[str, str]:
    namespace = in_demo.get("namespace", in_demo.name)["metadata"]["uid"]
    node = in_demo.get("node", current_instance().node_name)["metadata"]["uid"]
    return namespace, node


@pytest.fixture(scope="class")
def in_demo(kubeconfig: Path, examples_image: str) -> Iterator[Namespace]:
    """The namespace that the demo creates."""
    namespace = Namespace("hvd-demo", kubeconfig, examples_image)
    yield namespace
    namespace.kubectl("delete", "namespace", namespace.name, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="class")
def first(in_demo: Namespace) -> Demo:
    """What the demo has printed and made when it ran once."""
    return Demo(demo(), uids(in_demo))


@pytest.fixture(scope="class")
def again(first: Demo) -> None:
    """The demo has run a second time."""
    demo()


class TestDemo:
    def test_accuracy_is_that_of_a_model_that_has_learnt(self, first: Demo) -> None:
        accuracy = re.search(r"accuracy +([0-9.]+) on held-out digits", first.printed)
        assert accuracy is not None, first.printed
        assert float(accuracy[1]) >= 0.95

    def test_figures_and_places_of_both_ranks_are_printed(self, first: Demo) -> None:
        assert re.search(r"throughput [0-9]+ images/s over 2 ranks", first.printed), first.printed
        assert "first allreduce" in first.printed
        assert re.search(r"hvd-worker-1 +localkube-\S+\n", first.printed), first.printed

    def test_next_commands_are_printed(self, first: Demo) -> None:
        assert "and then, for example:" in first.printed

    def test_demo_can_be_repeated_on_the_same_cluster(
        self, first: Demo, again: None, in_demo: Namespace
    ) -> None:
        assert uids(in_demo) == first.uids

    def test_workers_are_gone_after_it(self, again: None, in_demo: Namespace) -> None:
        in_demo.wait_for_no_workers("hvd")
