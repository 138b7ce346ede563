"""Two more nodes join the cluster. One is cut off, comes back, and leaves before the other."""

from __future__ import annotations

import json
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from devtools.common.waiting import wait_until
from devtools.localkube.instance import Instance
from devtools.localkube.node_processes import NodeProcesses
from tests.localkube.machine import TIMEOUT_SECONDS
from tests.localkube.pods import probe_pod
from tests.support.localkube import Cluster


def seconds_for_a_megabyte(address: str) -> float:
    """How long this machine takes to get it from a pod of the probe."""
    began = time.monotonic()
    with urllib.request.urlopen(f"http://{address}:8080/megabyte") as answer:
        answer.read()
    return time.monotonic() - began


@dataclass(frozen=True)
class Nodes:
    """The second and the third node of the cluster, and the addresses of a pod on each."""

    second: Instance
    third: Instance
    addresses: dict[str, str]

    @property
    def processes(self) -> tuple[NodeProcesses | None, NodeProcesses | None]:
        """What the nodes' processes are: others mean that a node was started again."""
        return NodeProcesses.read(self.second), NodeProcesses.read(self.third)

    def fetch_seconds(self) -> list[float]:
        return [seconds_for_a_megabyte(address) for address in self.addresses.values()]


@pytest.fixture(scope="class")
def added(probe: Cluster) -> list[str]:
    """What `add-node` has printed, twice."""
    return [probe.run("add-node").stdout.strip() for _ in range(2)]


@pytest.fixture(scope="class")
def loaded(added: list[str], probe: Cluster, probe_folder: Path) -> list[str]:
    """What `load` has printed of each node, of which the first one has the image."""
    return probe.run("load", str(probe_folder / "probe.tar")).stdout.splitlines()


@pytest.fixture(scope="class")
def nodes(loaded: list[str], probe: Cluster) -> Nodes:
    """The pods `on-2` and `on-3` answer on port 8080."""
    second, third, _ = probe.instance.others
    addresses = {}
    for node in (second, third):
        pod = f"on-{node.node}"
        spec = {"nodeName": node.node_name, "terminationGracePeriodSeconds": 0}
        probe.apply(probe_pod(pod, {"args": ["serve"]}, **spec))
        probe.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=180s")
        status = json.loads(probe.kubectl("get", "pod", pod, "-o", "json"))["status"]
        addresses[pod] = status["podIP"]
    return Nodes(second, third, addresses)


@pytest.fixture(scope="class")
def shaped(nodes: Nodes, probe: Cluster) -> list[str]:
    """What `shape` has printed of each node whose links it has limited."""
    return probe.run("shape", "--rate=8mbit").stdout.splitlines()


@pytest.fixture(scope="class")
def cut_off(nodes: Nodes, probe: Cluster) -> tuple[NodeProcesses | None, NodeProcesses | None]:
    """The second node was killed; the processes before that."""
    before = nodes.processes
    assert before[0] is not None
    before[0].init.kill_and_wait()
    return before


@pytest.fixture(scope="class")
def removed(cut_off: object, nodes: Nodes, probe: Cluster) -> None:
    """The second node came back, and has left the cluster before the third one."""
    probe.run("add-node", "2")
    probe.run("remove-node", "2")


@pytest.mark.rare
class TestMoreNodes:
    def test_shape_needs_a_second_node(self, probe: Cluster) -> None:
        assert "no second node" in probe.run("shape", "--rate=8mbit", check=False).stderr

    def test_add_node_prints_the_name_of_the_next_node(
        self, added: list[str], probe: Cluster
    ) -> None:
        second, third, _ = probe.instance.others
        assert added == [second.node_name, third.node_name]

    def test_load_goes_to_the_nodes_without_the_image(self, loaded: list[str]) -> None:
        assert ["was already" in line for line in loaded] == [True, False, False]

    def test_pod_of_another_node_reaches_a_service_by_its_name(
        self, nodes: Nodes, probe: Cluster
    ) -> None:
        wait_until(
            lambda: "this is server" in probe.get("on-2", "http://web.default"),
            TIMEOUT_SECONDS,
            "the second node's pod reaches a Service whose pod is on the first one",
        )

    @pytest.mark.parametrize(
        ("source", "pod"), [("server", "on-2"), ("on-2", "on-3"), ("on-3", "on-2")]
    )
    def test_pods_of_all_nodes_reach_each_other(
        self, nodes: Nodes, probe: Cluster, source: str, pod: str
    ) -> None:
        assert f"this is {pod}" in probe.get(source, f"http://{nodes.addresses[pod]}:8080")

    def test_status_shows_the_parts_of_all_nodes(self, nodes: Nodes, probe: Cluster) -> None:
        shown = probe.run("status").stdout
        assert "node 2: kubelet" in shown
        assert "node 3: kubelet" in shown

    def test_shape_limits_the_rate_of_each_other_node(
        self, shaped: list[str], nodes: Nodes
    ) -> None:
        names = [nodes.second.node_name, nodes.third.node_name]
        assert [line.split(":")[0] for line in shaped] == names
        # Eight megabits take a second, less what a queue lets through at once.
        assert min(nodes.fetch_seconds()) > 0.8

    def test_shape_off_removes_the_limits(
        self, shaped: list[str], nodes: Nodes, probe: Cluster
    ) -> None:
        probe.run("shape", "--off")
        wait_until(lambda: max(nodes.fetch_seconds()) < 0.8, TIMEOUT_SECONDS, "no limit")

    def test_add_node_leaves_a_healthy_node_alone(self, nodes: Nodes, probe: Cluster) -> None:
        before = nodes.processes
        probe.run("add-node", "2")
        assert nodes.processes == before

    def test_cluster_does_not_depend_on_its_second_node(
        self, cut_off: object, probe: Cluster
    ) -> None:
        wait_until(probe.is_healthy, TIMEOUT_SECONDS, "the cluster is healthy")

    def test_add_node_starts_the_node_that_is_away_and_no_other(
        self,
        cut_off: tuple[NodeProcesses | None, NodeProcesses | None],
        nodes: Nodes,
        probe: Cluster,
    ) -> None:
        assert probe.run("add-node").stdout.strip() == nodes.second.node_name
        second, third = nodes.processes
        assert second != cut_off[0]
        assert third == cut_off[1]

    def test_removed_node_leaves_nothing(self, removed: None, nodes: Nodes, probe: Cluster) -> None:
        assert nodes.second.node_name not in probe.kubectl("get", "nodes")
        assert not nodes.second.state.exists()

    def test_remove_node_removes_the_last_one_and_then_finds_none(
        self, removed: None, nodes: Nodes, probe: Cluster
    ) -> None:
        probe.run("remove-node")
        assert nodes.third.node_name not in probe.kubectl("get", "nodes")
        assert "no such node" in probe.run("remove-node").stderr
