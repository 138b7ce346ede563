"""The command image check, with an engine that records its calls and in a small API server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hvdchart.image.check import UNKNOWN_USER, probe_pod
from hvdchart.image.probe import MARK
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.image.test_check import GOOD
from tests.unit.hvdchart.nodes import node
from tests.unit.hvdchart.nodes import pod as other_pod

pytestmark = pytest.mark.timeout(120)


def test_image_check_runs_the_probe_as_an_unknown_user(hvdchart: Command, programs: Path) -> None:
    docker = StubProgram(programs, "docker")
    docker.answer("run", f"banner\n{MARK}{json.dumps(GOOD)}\n")
    done = hvdchart("image", "check", "image:1", "--engine", "docker")
    assert (done.code, done.errors) == (0, "")
    assert done.output.startswith("image:1\n  ok  Python 3.8+")
    assert f"--user={UNKNOWN_USER}:0" in docker.calls[-1].arguments
    docker.answer("run", f"{MARK}{json.dumps({**GOOD, 'horovod': False})}\n")
    lacking = hvdchart("image", "check", "image:1", "--engine", "docker", "--mode", "elastic")
    assert lacking.code == 9
    assert lacking.errors.endswith(
        "hvdchart: image:1 cannot be used with launch.mode elastic; missing: Horovod\n"
    )


def test_image_check_in_cluster_runs_the_probe_in_a_pod(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    name = "hvdchart-image-check-x1"
    fake_cluster.created_status = {"phase": "Succeeded"}
    fake_cluster.log(name, f"{MARK}{json.dumps(GOOD)}", end=True)
    done = hvdchart("image", "check", "image:1", "--in-cluster", "-n", "mine")
    assert (done.code, done.errors) == (0, "")
    request = fake_cluster.wait_for("pods", "create")
    assert request.url == "/api/v1/namespaces/mine/pods"
    assert request.body == probe_pod("image:1")


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
