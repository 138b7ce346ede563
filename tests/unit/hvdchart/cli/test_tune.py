"""The command tune, with a small API server and a Helm that records its calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command, answer_as
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.runs import job, pod, terminated

pytestmark = pytest.mark.timeout(120)


def measure(cluster: FakeCluster, helm: StubProgram, *results: str) -> None:
    """A tuning run that prints these lines and ends."""
    answer_as(helm, "hvd-tune")
    labels = {"app.kubernetes.io/name": "horovod", "app.kubernetes.io/instance": "hvd-tune"}
    run, master = job(("Complete", "", "")), pod("hvd-tune-master-1-a", "master", terminated(0))
    run["metadata"]["labels"] = labels
    master["metadata"]["labels"] = {**labels, "app.kubernetes.io/component": "master"}
    cluster.put("jobs", run)
    cluster.put("pods", master)
    cluster.log("hvd-tune-master-1-a", *results, end=True)


def result(run: int, speed: float | None, error: str = "") -> str:
    return "TUNE " + json.dumps({"run": run, "speed": speed, "error": error})


@pytest.mark.slow
def test_tune_measures_in_a_run_and_writes_the_best_setting(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram, tmp_path: Path
) -> None:
    # Runs of the plan's own setting and of another, which is faster; both are measured again.
    measure(
        fake_cluster, helm, "hello", *(result(n, 10.0 if n % 2 == 0 else 20.0) for n in range(4))
    )
    target = tmp_path / "tuning.yaml"
    grid = ["--omp", "3", "--intra", "1", "--inter", "1", "--kmp-blocktime", "0"]
    options = ["--repeat", "2", "--confirm", "2", "--command", "bench 'a b'", "--workers", "1"]
    done = hvdchart("tune", spec, *grid, *options, "-w", target)
    assert done.code == 0, done.errors
    assert done.errors.startswith("2 settings, 2 runs each, on 1 worker\n1/4     10.00  OMP")
    assert "1 faster setting: measuring again, in turn with the plan's\n" in done.errors
    assert "kmpBlocktime: 0" in target.read_text()
    assert "hvdchart tune run.spec.yaml`" in target.read_text()
    assert "+100.0% faster" in target.read_text()
    assert helm.commands().count("uninstall") == 2
    installed, again = (json.loads(c.input) for c in helm.calls if c.arguments[0] == "upgrade")
    assert installed["worker"]["number"] == 1
    driven = json.loads(installed["master"]["args"][-2])
    assert json.loads(again["master"]["args"][-2]) == driven, "the plan's and the only other one"
    assert driven["command"] == ["bench", "a b"]
    assert len(driven["runs"]) == 4
    assert driven["runs"][1] == {
        "OMP_NUM_THREADS": "3", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1",
        "KMP_BLOCKTIME": "0",
    }  # fmt: skip


@pytest.mark.slow
def test_tune_without_a_result_uninstalls_and_has_the_last_line(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    measure(fake_cluster, helm, "no module named tensorflow")
    done = hvdchart("tune", spec)
    assert done.code == 8
    assert done.errors.endswith(
        "hvd-tune ended without a measurement; its last line: "
        "hvd-tune-master-1-a: no module named tensorflow\n"
    )
    assert helm.commands()[-1] == "uninstall"
