"""The command discover, with a small API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command
from tests.unit.hvdchart.nodes import node
from tests.unit.hvdchart.nodes import pod as other_pod

pytestmark = pytest.mark.timeout(120)


def test_discover_writes_a_spec_to_stdout_or_a_file(
    hvdchart: Command, fake_cluster: FakeCluster, tmp_path: Path
) -> None:
    fake_cluster.put("nodes", node("a", "8", "32Gi", {"pool": "x"}), node("b", "16", "32Gi"))
    done = hvdchart("discover", "-l", "pool=x", "--name", "mine")
    assert (done.code, done.errors) == (0, "")
    assert "name: mine" in done.output
    assert "pool: x" in done.output
    assert "coresPerSocket: 8" in done.output
    target = tmp_path / "out.yaml"
    assert hvdchart("discover", "-l", "pool=x", "--name", "mine", "-w", target).output == ""
    assert target.read_text() == done.output
    none = hvdchart("discover", "--selector", "pool=y")
    assert (none.code, none.errors) == (
        7,
        "hvdchart: the cluster has no nodes with labels pool=y\n",
    )


def test_discover_reads_numa_nodes_where_they_are_published(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    fake_cluster.put("nodes", node("a", "8", "32Gi"))
    zones = [{"name": f"node-{n}", "type": "Node"} for n in range(4)]
    fake_cluster.put("noderesourcetopologies", {"metadata": {"name": "a"}, "zones": zones})
    assert "numaPerSocket: 2" in hvdchart("discover").output
    for status in (403, 404):
        fake_cluster.refusals["noderesourcetopologies list"] = (status, "not here")
        done = hvdchart("discover")
        assert (done.code, done.errors) == (0, "")
        assert "numaPerSocket" not in done.output
    fake_cluster.refusals["noderesourcetopologies list"] = (500, "broken")
    done = hvdchart("discover")
    assert (done.code, done.output) == (7, "")
    assert "cannot list node resource topologies: broken" in done.errors


def test_discover_of_an_empty_cluster_exits_with_7(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    done = hvdchart("discover")
    assert (done.code, done.errors) == (7, "hvdchart: the cluster has no nodes\n")


def test_discover_needs_the_pods_for_fit_only(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    fake_cluster.put("nodes", node("a", "8", "32Gi"))
    fake_cluster.put("pods", other_pod("a", {"cpu": "7"}))
    assert hvdchart("discover", "--fit", "1").code == 7
    fake_cluster.refusals["pods list"] = (403, "forbidden")
    done = hvdchart("discover")
    assert done.code == 0
    assert "you are not allowed to (forbidden)" in done.errors
    assert done.errors.endswith("; continuing without the pods\n")
    assert "requests of DaemonSets are estimated" in done.output
    refused = hvdchart("discover", "--fit", "1")
    assert (refused.code, refused.output) == (7, "")
