"""The cluster's whole life, on a second cluster of its own, as root: start, crash, mend, stop.

Every claim of docs/localkube.md about what is left alone, and what is left behind, is checked here.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from devtools.localkube.instance import Instance
from devtools.localkube.processes import EXIT, all_processes
from devtools.localkube.record import Record
from tests.localkube.conftest import NAME, REPOSITORY, Cluster, await_true, machine

pytestmark = pytest.mark.cluster_lifecycle


def components() -> list[str]:
    """All that run for as long as the cluster does."""
    processes = all_processes(Instance(NAME), Path("kube"), Path("coredns"))
    return [process.name for process in processes if process.ready != EXIT]


def test_the_node_is_the_whole_machine(cluster: Cluster) -> None:
    node = json.loads(cluster.kubectl("get", "node", cluster.instance.node_name, "-o", "json"))
    assert node["status"]["allocatable"] == node["status"]["capacity"]
    assert int(node["status"]["allocatable"]["cpu"]) == os.cpu_count()
    assert int(node["status"]["allocatable"]["pods"]) >= 110


def test_up_again_changes_nothing(cluster: Cluster) -> None:
    before = Record.read(cluster.instance), cluster.processes()
    again = cluster.run("up")
    assert again.stdout.strip() == str(cluster.instance.kubeconfig)
    assert (Record.read(cluster.instance), cluster.processes()) == before


def test_the_kubeconfig_is_for_its_owner_only(cluster: Cluster) -> None:
    assert cluster.instance.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert cluster.instance.state.stat().st_mode & 0o777 == 0o700


def test_status_is_for_machines_too(cluster: Cluster) -> None:
    status = json.loads(cluster.run("status", "-o", "json").stdout)
    assert status["healthy"]
    assert all(part["healthy"] for part in status["parts"])


@pytest.mark.parametrize("component", components())
def test_a_killed_component_comes_back(cluster: Cluster, component: str) -> None:
    restarts = cluster.processes()[component]["restarts"]
    cluster.host_process(component).kill()
    await_true(
        f"{component} was started again",
        lambda: cluster.processes()[component]["restarts"] > restarts,
    )
    await_true("the cluster is healthy again", cluster.healthy)


def test_up_after_all_was_killed_keeps_what_the_cluster_held(probe: Cluster) -> None:
    record = Record.read(probe.instance)
    assert record is not None
    record.init.kill_and_wait()
    assert not probe.healthy()
    probe.run("up")
    await_true(
        "the pod runs again",
        lambda: "this is server" in probe.kubectl(
            "exec", "server", "--", "/probe", "get", "http://web.default", check=False
        ),
    )  # fmt: skip


def test_after_a_reboot_it_is_made_anew(probe: Cluster) -> None:
    """Its store was never synced to disk, so what a power cut left of it is not to be trusted."""
    record = Record.read(probe.instance)
    assert record is not None
    record.stop()
    made_by = probe.instance.state / "made-by.json"
    made_by.write_text(json.dumps({**json.loads(made_by.read_text()), "boot": "another"}))
    probe.run("up")
    assert "NotFound" in probe.kubectl("get", "pod", "server", check=False)


def test_up_killed_half_way_is_mended_by_the_next(down_cluster: Cluster) -> None:
    down_cluster.run("down")
    command, environment = down_cluster.command("up"), down_cluster.environment
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True
    ) as first:
        assert first.stderr is not None
        for line in first.stderr:
            if "etcd ready" in line:
                break
        first.kill()
    down_cluster.run("up")
    assert down_cluster.healthy()


def test_down_leaves_nothing_but_the_images(down_cluster: Cluster) -> None:
    down_cluster.run("down")
    before = machine()
    down_cluster.run("up")
    assert machine() != before, "the comparison sees nothing of a running cluster"
    down_cluster.run("down")
    assert machine() == before
    assert any(down_cluster.instance.store.iterdir())
    again = down_cluster.run("down", "--images")
    assert "was not up" in again.stderr
    assert not down_cluster.instance.store.parent.exists()


def test_without_root_it_says_so(down_cluster: Cluster) -> None:
    down_cluster.run("down")
    refused = subprocess.run(
        # In a user namespace without a map root is nobody, and still may read root's files.
        ["unshare", "--user", *down_cluster.command("up")],
        cwd=REPOSITORY,
        env=down_cluster.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert "not root (uid 65534)" in refused.stderr
    assert "remedy" in refused.stderr


def test_an_address_in_use_is_refused_before_anything_starts(down_cluster: Cluster) -> None:
    down_cluster.run("down")
    taken = str(down_cluster.instance.network)
    subprocess.run(["ip", "route", "add", "blackhole", taken], check=True)
    try:
        refused = down_cluster.run("up", check=False)
    finally:
        subprocess.run(["ip", "route", "delete", "blackhole", taken], check=True)
    assert refused.returncode == 1
    assert f"{taken} is in use" in refused.stderr
    assert not down_cluster.instance.state.exists()
