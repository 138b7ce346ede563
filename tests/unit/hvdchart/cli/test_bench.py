"""bench: sizes in turns in one temporary run, a table, a result and a plot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command, answer_as
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.runs import SPEC, installed_values, job, meanwhile, pod, terminated
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).parents[4]
NAME = "hvd-bench"
MASTER = f"{NAME}-master-1-a"
LABELS = {"app.kubernetes.io/name": "horovod", "app.kubernetes.io/instance": NAME}
MACHINE = {"host": "hvd-bench-worker-0", "processor": "Xeon", "cpus": 8, "gpus": []}
FIGURES = [(0, 1, 10.0), (0, 2, 19.0), (1, 2, 21.0), (1, 1, 11.0)]


@pytest.fixture
def spec(tmp_path: Path, helm: StubProgram) -> Path:
    """A spec of two workers of a rank. Helm installs the measuring run."""
    path = tmp_path / "run.spec.yaml"
    path.write_text(json.dumps(SPEC))
    answer_as(helm, NAME)
    return path


def worker(number: int) -> Any:
    made = pod(f"{NAME}-worker-{number}", "worker", {"running": {}}, node=f"n{number}")
    made["metadata"]["labels"] = {**LABELS, "app.kubernetes.io/component": "worker"}
    made["status"]["containerStatuses"][0]["imageID"] = "team/train@sha256:1"
    return made


def bench_line(turn: int, workers: int, speed: float | None) -> str:
    result = {"imagesPerSecond": speed} if speed else None
    measured = {"turn": turn, "workers": workers, "ranks": workers, "result": result}
    return "BENCH " + json.dumps({**measured, "error": "out of luck"})


def play(cluster: FakeCluster, helm: StubProgram, *lines: str) -> Callable[[], None]:
    """What lets the run print these lines and end, when Helm has installed it."""

    def play() -> None:
        wait_until(lambda: "upgrade" in helm.commands(), 20, "Helm installs the run")
        run, master = job(("Complete", "", "")), pod(MASTER, "master", terminated(0))
        run["metadata"]["labels"] = LABELS
        master["metadata"]["labels"] = {**LABELS, "app.kubernetes.io/component": "master"}
        # Before the pods, whose logs are asked for at once.
        for number in (0, 1):
            cluster.log(f"{NAME}-worker-{number}")
        cluster.log(MASTER, *lines, end=True)
        cluster.put("pods", worker(0), worker(1), master)
        cluster.put("jobs", run)

    return play


@pytest.mark.slow
def test_sizes_are_measured_in_one_run_and_shown(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram, tmp_path: Path
) -> None:
    written, picture = tmp_path / "result.json", tmp_path / "plot.svg"
    options = ["--turns", "2", "--model", "vgg16", "--arguments", "--steps 3"]
    lines = [f"MACHINE {json.dumps(MACHINE)}", *(bench_line(*each) for each in FIGURES)]
    with meanwhile(play(fake_cluster, helm, *lines)):
        done = hvdchart("bench", spec, *options, "-w", written, "--plot", picture)
    assert done.code == 0, done.errors
    assert "1, 2 workers, 2 turns, in run hvd-bench\n" in done.errors
    assert "4 of 4: 1 worker, 1 rank: 11.0 images/s\n" in done.errors
    rows = [line.strip("│").split("│") for line in done.output.splitlines() if "│" in line]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert [row[0] for row in cells] == ["1", "2"]
    assert (cells[1][1], cells[1][3]) == ("2", "10.0")
    assert cells[1][2].startswith("20.0 +- ")
    assert cells[1][4].startswith("95.2% +- ")
    assert "1 x (Xeon, 8 CPUs) on 2 nodes; 2 turns, 20" in done.output
    assert "image team/train@sha256:1; " in done.output
    result = json.loads(written.read_text())
    assert written.read_text() == json.dumps(result, indent=1) + "\n"
    assert [row["turns"] for row in result["rows"]] == [[10.0, 11.0], [19.0, 21.0]]
    assert picture.read_text().startswith("<svg ")
    title = "hvd: benchmark.py --model vgg16 --batch-size 32 --steps 3<"
    assert title in picture.read_text()
    assert helm.commands()[-1] == "uninstall"
    values = installed_values(helm)
    driven = json.loads(values["master"]["args"][2])
    assert driven["command"] == [
        *("python", "benchmark.py", "--model", "vgg16", "--batch-size", "32", "--steps", "3")
    ]
    # The same table from the file, without a cluster.
    again = hvdchart("bench", "--read", written, "-o", "json")
    assert json.loads(again.output) == result
    assert "several workers" not in again.errors
    written.write_text(json.dumps({**result, "nodes": dict.fromkeys(result["nodes"], "n0")}))
    assert "several workers were on one node (n0)" in hvdchart("bench", "--read", written).errors


def test_a_failed_measurement_uninstalls_and_says_why(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram
) -> None:
    with meanwhile(play(fake_cluster, helm, bench_line(0, 1, 10.0), bench_line(0, 2, None))):
        done = hvdchart("bench", spec, "--turns", "2")
    assert (done.code, done.output) == (8, "")
    assert "cannot measure 2 workers: out of luck" in done.errors
    assert helm.commands()[-1] == "uninstall"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--workers", "3"], 3), (["--workers", "x"], 2), (["--turns", "1"], 2),
        (["--arguments", "'a"], 2), (["--read", "none.json"], 5), (["-o", "csv"], 2),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_before_anything_is_installed(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram,
    options: list[str], code: int,
) -> None:  # fmt: skip
    done = hvdchart("bench", spec, *options)
    assert done.code == code, done.errors
    assert helm.calls == []
