"""The command `bench`: it measures in one temporary run, and shows the figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.common.waiting import wait_until
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.command import Command, Outcome
from tests.unit.hvdchart.objects import job, of_release, pod, terminated
from tests.unit.hvdchart.played_runs import answer_as, installed_values, meanwhile

pytestmark = pytest.mark.timeout(120)
NAME = "hvd-bench"
MASTER = f"{NAME}-master-1-a"
# The trial, its ranks, and its speed.
FIGURES = [(0, 1, 10.0), (1, 2, 19.0), (2, 2, 21.0), (3, 1, 11.0)]


def worker(number: int) -> Any:
    worker_pod = pod(f"{NAME}-worker-{number}", "worker", {"running": {}}, node=f"n{number}")
    worker_pod["status"]["containerStatuses"][0]["imageID"] = "team/train@sha256:1"
    return of_release(NAME, worker_pod)


def measured_line(trial: int, ranks: int, speed: float | None) -> str:
    result = {"trial": trial, "ranks": ranks, "speed": speed, "error": "out of luck"}
    return "MEASURED " + json.dumps(result)


def play_benchmark(cluster: FakeCluster, helm: StubProgram, *lines: str) -> Callable[[], None]:
    """What lets the run print these lines and end, when Helm has installed it."""
    answer_as(helm, NAME)

    def play() -> None:
        wait_until(lambda: "upgrade" in helm.commands(), 20, "Helm installs the run")
        # Before the pods, whose logs are asked for at once.
        for number in (0, 1):
            cluster.log(f"{NAME}-worker-{number}")
        cluster.log(MASTER, *lines, end=True)
        master = of_release(NAME, pod(MASTER, "master", terminated(0)))
        cluster.put("pods", worker(0), worker(1), master)
        cluster.put("jobs", of_release(NAME, job(("Complete", "", ""))))

    return play


@pytest.fixture
def measured(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram, tmp_path: Path
) -> Outcome:
    """What a benchmark of two sizes has printed; its results are in result.json."""
    options = ["--turns", "2", "--model", "vgg16", "--arguments", "--steps 3"]
    lines = (measured_line(*figure) for figure in FIGURES)
    with meanwhile(play_benchmark(fake_cluster, helm, *lines)):
        done = hvdchart("bench", spec, *options, "-w", tmp_path / "result.json")
    assert done.code == 0, done.errors
    return done


@pytest.mark.slow
def test_sizes_are_measured_in_one_run_with_the_model_and_the_arguments(
    measured: Outcome, helm: StubProgram
) -> None:
    assert helm.commands().count("upgrade") == 1
    assert helm.commands()[-1] == "uninstall"
    driven = json.loads(installed_values(helm)["master"]["args"][3])
    model = ["--model", "vgg16", "--batch-size", "32"]
    assert driven["command"] == ["python", "benchmark.py", *model, "--steps", "3"]


@pytest.mark.slow
def test_figures_and_conditions_are_shown(measured: Outcome) -> None:
    assert "4 of 4: 1 worker, 1 rank: 11.0 " in measured.errors
    rows = [line.strip("│").split("│") for line in measured.output.splitlines() if "│" in line]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert [row[0] for row in cells] == ["1", "2"]
    assert (cells[1][1], cells[1][3]) == ("2", "10.0")
    assert cells[1][2].startswith("20.0 +- ")
    assert cells[1][4].startswith("95.2% +- ")
    assert "2 workers on 2 nodes; 2 turns" in measured.output
    assert "image team/train@sha256:1; " in measured.output


@pytest.mark.slow
def test_results_are_written_as_json(measured: Outcome, tmp_path: Path) -> None:
    result = json.loads((tmp_path / "result.json").read_text())
    assert [row["turns"] for row in result["rows"]] == [[10.0, 11.0], [19.0, 21.0]]
    assert result["firstPod"] == worker(0)["metadata"]["uid"]
    assert result["nodes"][f"{NAME}-worker-1"] == "n1"


def test_figures_are_shown_if_the_file_cannot_be_written(
    hvdchart: Command, fake_cluster: FakeCluster, spec: Path, helm: StubProgram, tmp_path: Path
) -> None:
    """The nodes have worked for hours, and the run is uninstalled."""
    file = tmp_path / "none" / "result.json"
    lines = (measured_line(*figure) for figure in FIGURES)
    with meanwhile(play_benchmark(fake_cluster, helm, *lines)):
        done = hvdchart("bench", spec, "--turns", "2", "-w", file, "-o", "json")
    assert done.code == 5
    assert str(file) in done.errors
    assert [row["workers"] for row in json.loads(done.output)["rows"]] == [1, 2]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (measured_line(1, 2, None), "2 workers: out of luck"),
        # The measured script shares its output with the driver.
        *(
            (f"MEASURED {text}", ": MEASURED")
            for text in (
                "[",
                "[" * 100_000,
                '{"trial": 1}',
                '{"trial": "x", "ranks": 1, "speed": 1}',
                '{"trial": 9, "ranks": 1, "speed": 1, "error": ""}',
            )
        ),
    ],
)
def test_a_failed_measurement_uninstalls_and_says_why(
    hvdchart: Command,
    fake_cluster: FakeCluster,
    spec: Path,
    helm: StubProgram,
    line: str,
    says: str,
) -> None:
    long = "x" * 1000
    with meanwhile(play_benchmark(fake_cluster, helm, measured_line(0, 1, 10.0), long, line)):
        done = hvdchart("bench", spec, "--turns", "2")
    assert (done.code, done.output) == (8, "")
    assert says in done.errors
    assert f"{MASTER}: {long}\n" in done.errors
    assert helm.commands()[-1] == "uninstall"
