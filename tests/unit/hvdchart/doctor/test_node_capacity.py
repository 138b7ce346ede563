"""Runs that no node could ever hold are refused before anything is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hvdchart.doctor.node_capacity import examine_fit
from tests.support.fakes import faults
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.played_runs import list_upgrades

GPU = "nvidia.com/gpu"


def node(name: str = "n", **more: Any) -> dict[str, Any]:
    """A node of 8 CPUs and 23 GiB."""
    allocatable = {"cpu": "8", "memory": "23Gi", **more.pop("allocatable", {})}
    metadata = {"name": name, "labels": more.pop("labels", {})}
    return {"metadata": metadata, "spec": more, "status": {"allocatable": allocatable}}


def daemon(memory: str, owner: str = "DaemonSet") -> dict[str, Any]:
    """A pod on node n."""
    container = {"resources": {"requests": {"memory": memory}}}
    owners = [{"kind": owner, "name": "d"}]
    spec = {"nodeName": "n", "containers": [container]}
    return {"metadata": {"ownerReferences": owners}, "spec": spec, "status": {}}


def values(number: int, memory: str = "3Gi", **worker: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "250m", "memory": memory, **worker.pop("requests", {})}}
    workers = {"number": number, "slots": 1, "resources": resources, **worker}
    master = {"resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}
    return {"worker": workers, "master": master}


POOL: dict[str, Any] = {"nodeSelector": {"pool": "a"}}
TAINT = {"key": "team", "value": "b", "effect": "NoSchedule"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("nodes", "run", "problem"),
    [
        ([node()], values(7), ""),
        ([node()], values(40), "40 workers with 250m cpu, 3Gi memory "),
        ([node(), node("m")], values(14), ""),
        ([node()], values(1, "24Gi"), " 23Gi"),
        (
            [node(allocatable={"memory": "25276518400"})],
            values(1, "900Gi"),
            " 24105Mi",
        ),
        ([node()], values(1, requests={GPU: "8"}), f"{GPU} of a node is 0"),
        ([node(allocatable={GPU: "8"})], values(1, requests={GPU: "8"}), ""),
        ([node()], values(1, **POOL), "labels and taints"),
        ([node(labels={"pool": "a"})], values(1, **POOL), ""),
        ([node(taints=[TAINT])], values(1), "labels and taints"),
        # These pass by themselves.
        ([node(taints=[NOT_READY], unschedulable=True)], values(1), ""),
        ([node()], values(2, spread="Required"), "2 workers with"),
        ([node()], values(2, spread="Preferred"), ""),
        ([node()], values(7, spares=2), ""),
        ([node()], values(40, minimum=1), ""),
    ],
)
def test_run_fits_on_nodes_that_nobody_else_uses_or_never(
    nodes: list[dict[str, Any]], run: dict[str, Any], problem: str
) -> None:
    finding = examine_fit(nodes, [], run)
    assert finding.state == ("problem" if problem else "ok")
    assert problem in finding.text or not problem


@pytest.mark.parametrize(
    ("memory", "pods", "is_room"),
    [
        ("22Gi", [], True),
        ("23Gi", [], False),
        # Daemons stay, and other pods may end.
        ("22Gi", [daemon("1Gi")], False),
        ("22Gi", [daemon("1Gi", "ReplicaSet")], True),
    ],
)
def test_workers_leave_room_for_the_master_or_not(
    memory: str, pods: list[dict[str, Any]], is_room: bool
) -> None:
    finding = examine_fit([node()], pods, values(1, memory))
    assert finding.state == ("ok" if is_room else "problem")


def test_master_finds_a_node_that_the_workers_leave() -> None:
    # Seven workers fill one node but for 2 GiB, and eight need the other one, too.
    assert examine_fit([node(), node("m")], [], values(14)).state == "ok"
    small = [node(), node("m", allocatable={"memory": "300Mi"})]
    assert examine_fit(small, [], values(1, "23Gi")).state == "ok"


@pytest.mark.parametrize(
    ("options", "code"), [(["--workers", "40"], 7), (["--workers", "40", "--force"], 0), ([], 0)]
)
def test_impossible_run_is_refused_before_it_is_installed(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    helm: StubProgram,
    script: Path,
    options: list[str],
    code: int,
) -> None:
    fake_cluster.put("nodes", node())
    done = hvdchart("run", script, "--detach", *options)
    assert (done.code, bool(list_upgrades(helm))) == (code, code == 0), done.errors
    assert ("`--force`" in done.errors) == (code == 7)


def test_who_may_not_see_nodes_learns_it_from_the_scheduler(
    hvdchart: Command, fake_cluster: FakeCluster, script: Path
) -> None:
    fake_cluster.put("nodes", node())
    fake_cluster.fail("GET", "core/nodes", faults.status(403))
    assert hvdchart("run", script, "--detach", "--workers", "40").code == 0
