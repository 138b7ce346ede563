"""What the pods of a run use, from the metrics API or from the pods themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdchart.errors import ClusterError
from hvdchart.run.cluster import Cluster
from hvdchart.run.kubectl import Kubectl
from hvdchart.run.top import Usage, parse_probe, read_usage
from tests.fakes.cluster import FakeCluster
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.runs import LABELS, WORKERS

PROBE = "cpu 1000000 10.0\ncpu 4000000 12.0\nmemory 1000\n0:horovod_step 7\n"


@pytest.fixture
def measured(fake_cluster: FakeCluster) -> FakeCluster:
    """A worker whose usage the metrics API has."""
    fake_cluster.put("pods", WORKERS[0])
    usage = [{"name": "worker", "usage": {"cpu": "250m", "memory": "2Ki"}}]
    metadata = {"name": "hvd-worker-0", "labels": LABELS}
    fake_cluster.put("podmetrics", {"metadata": metadata, "containers": usage})
    return fake_cluster


def test_the_speed_of_the_cpu_counter_is_the_cpus_in_use() -> None:
    assert parse_probe("a", PROBE) == Usage("a", 1.5, 1000, {0: {"step": 7.0}})


def test_the_metrics_api_goes_before_what_the_pod_says(
    measured: FakeCluster, programs: Path
) -> None:
    kubectl = StubProgram(programs, "kubectl")
    kubectl.answer("team", PROBE)
    usages = read_usage(Cluster.connect(), "hvd", Kubectl("team"))
    assert usages == [Usage("hvd-worker-0", 0.25, 2048, {0: {"step": 7.0}})]
    kubectl.answer("team", errors="no shell", code=1)
    usages = read_usage(Cluster.connect(), "hvd", Kubectl("team"))
    assert usages == [Usage("hvd-worker-0", 0.25, 2048)]


def test_without_kubectl_the_metrics_api_is_enough(
    measured: FakeCluster, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(programs))
    usages = read_usage(Cluster.connect(), "hvd", Kubectl("team"))
    assert usages == [Usage("hvd-worker-0", 0.25, 2048)]
    measured.refusals["podmetrics list"] = (404, "not found")
    with pytest.raises(ClusterError, match="no program kubectl is on PATH"):
        read_usage(Cluster.connect(), "hvd", Kubectl("team"))


def test_what_is_not_understood_is_left_out_and_the_rest_is_read() -> None:
    assert parse_probe("a", f"memory much\n{PROBE}") == parse_probe("a", PROBE)
