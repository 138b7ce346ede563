"""Starts, breaks, repairs and stops a cluster of the tests' own, as root.

Checks what docs/localkube.md says about what a cluster leaves unchanged and what it leaves behind.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.common.waiting import wait_until
from devtools.localkube.node_processes import NodeProcesses
from devtools.localkube.node_setup import DEVICE_PLUGINS
from devtools.toolchain.tools import kubernetes_releases
from tests.localkube.machine import TIMEOUT_SECONDS, machine_state
from tests.support.localkube import Cluster


class TestClusterThatRuns:
    def test_second_up_changes_nothing(self, cluster: Cluster) -> None:
        before = NodeProcesses.read(cluster.instance), cluster.processes()
        again = cluster.run("up")
        assert again.stdout.strip() == str(cluster.instance.kubeconfig)
        assert (NodeProcesses.read(cluster.instance), cluster.processes()) == before

    def test_release_of_a_cluster_that_runs_is_not_changed(self, cluster: Cluster) -> None:
        """The tests would otherwise pass in another release than the one that was asked for."""
        runs, other, *_ = kubernetes_releases()
        refused = cluster.run("up", check=False, LOCALKUBE_KUBERNETES=other)
        assert refused.returncode == 1
        assert f"LOCALKUBE_KUBERNETES={runs}" in refused.stderr
        assert cluster.is_healthy()
        cluster.run("up", LOCALKUBE_KUBERNETES=runs)

    def test_pods_may_have_all_resources_of_the_node(self, cluster: Cluster) -> None:
        node = json.loads(cluster.kubectl("get", "node", cluster.instance.node_name, "-o", "json"))
        assert node["status"]["allocatable"] == node["status"]["capacity"]
        assert int(node["status"]["allocatable"]["cpu"]) == os.cpu_count()

    def test_device_plugins_of_other_kubelets_are_left_alone(self, cluster: Cluster) -> None:
        """The path of the socket cannot be configured, and a kubelet removes what is there."""
        kubelet = cluster.host_process("kubelet")
        own = Path(f"/proc/{kubelet.pid}/root{DEVICE_PLUGINS}")
        assert (own / "kubelet.sock").is_socket()
        assert own.stat().st_dev != Path(DEVICE_PLUGINS).stat().st_dev

    def test_root_alone_reads_the_kubeconfig_and_the_state(self, cluster: Cluster) -> None:
        assert cluster.instance.kubeconfig.stat().st_mode & 0o777 == 0o600
        assert cluster.instance.state.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("component", ["etcd", "containerd", "kubelet"])
def test_killed_component_is_restarted(cluster: Cluster, component: str) -> None:
    restarts = cluster.processes()[component]["restarts"]
    cluster.host_process(component).kill()
    wait_until(
        lambda: cluster.processes()[component]["restarts"] > restarts,
        TIMEOUT_SECONDS,
        f"{component} was started again",
    )
    wait_until(cluster.is_healthy, TIMEOUT_SECONDS, "the cluster is healthy again")


@pytest.mark.rare
def test_up_keeps_all_objects_after_a_crash_and_none_after_a_reboot(probe: Cluster) -> None:
    """etcd does not sync its data to disk, so they cannot be trusted after a power cut."""
    processes = NodeProcesses.read(probe.instance)
    assert processes is not None
    processes.init.kill_and_wait()
    assert not probe.is_healthy()
    probe.run("up")
    wait_until(
        lambda: "this is server" in probe.get("server", "http://web.default"),
        TIMEOUT_SECONDS,
        "the pod runs again",
    )
    processes = NodeProcesses.read(probe.instance)
    assert processes is not None
    processes.stop()
    made_by = probe.instance.state / "made-by.json"
    made_by.write_text(json.dumps({**json.loads(made_by.read_text()), "boot": "another"}))
    probe.run("up")
    assert "NotFound" in probe.kubectl("get", "pod", "server", check=False)


def test_down_leaves_only_the_images(down_cluster: Cluster) -> None:
    down_cluster.run("down")
    before = machine_state()
    down_cluster.run("up")
    down_cluster.run("add-node")
    assert machine_state() != before, "the comparison does not see a running cluster"
    down_cluster.run("down")
    assert machine_state() == before
    assert any(down_cluster.instance.store.iterdir())
    again = down_cluster.run("down", "--images")
    assert "was not running" in again.stderr
    nodes = (down_cluster.instance, down_cluster.instance.others[0])
    assert not [node for node in nodes if node.store.parent.exists()]


@pytest.fixture
def taken(down_cluster: Cluster) -> Iterator[str]:
    """The network of the cluster, which is down, and which the machine uses otherwise."""
    down_cluster.run("down")
    network = str(down_cluster.instance.network)
    subprocess.run(["ip", "route", "add", "blackhole", network], check=True)
    yield network
    subprocess.run(["ip", "route", "delete", "blackhole", network], check=True)


def test_up_with_an_address_in_use_starts_nothing(down_cluster: Cluster, taken: str) -> None:
    refused = down_cluster.run("up", check=False)
    assert refused.returncode == 1
    assert f"{taken} is in use" in refused.stderr
    assert not down_cluster.instance.state.exists()
