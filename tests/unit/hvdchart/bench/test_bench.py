"""bench: sizes in turns in one temporary run, and what the figures say."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.common.waiting import wait_until
from hvdchart.bench.scaling import (
    Measurement,
    bench_plan,
    describe_placement,
    make_rows,
    mean_and_interval,
    place_text,
    turns_of,
)
from hvdchart.errors import RunFailedError
from hvdchart.plan.model import Plan
from hvdchart.values.check_values import checked_values
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.program import StubProgram
from tests.support.specs import planned
from tests.unit.hvdchart.command import Command, Outcome
from tests.unit.hvdchart.objects import job, of_release, pod, terminated
from tests.unit.hvdchart.played_runs import answer_as, installed_values, meanwhile


def test_sizes_are_measured_in_turns() -> None:
    assert turns_of([1, 4], 3) == [1, 4, 4, 1, 1, 4]


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The plan of a spec whose run has a mode of its own and a spare."""
    nodes = "{name: x, count: 16, sockets: 2, coresPerSocket: 28, threadsPerCore: 2, spares: 1}"
    return planned(nodes, "launch: {mode: direct}\n")


@pytest.fixture(scope="module")
def made(plan: Plan) -> Plan:
    """The plan of the benchmark's run."""
    return bench_plan(plan, turns_of([1, 4], 3), ["python", "benchmark.py"])


@pytest.fixture(scope="module")
def values(made: Plan) -> dict[str, Any]:
    """The values of the benchmark's run."""
    return checked_values(made)


def test_the_run_has_the_plans_binding_and_the_workers_of_the_largest_size(
    plan: Plan, made: Plan, values: dict[str, Any]
) -> None:
    assert made.spec.name == "run-bench"
    assert (values["worker"]["number"], values["worker"]["slots"]) == (4, 2)
    assert "spares" not in values["worker"]
    assert values["launch"]["binding"] == checked_values(plan)["launch"]["binding"]


def test_the_run_starts_the_driver_with_the_benchmark_once(values: dict[str, Any]) -> None:
    *_, text, hostfile, launch = values["master"]["args"]
    assert (hostfile, launch) == ("$(HOSTFILE)", "$(LAUNCH)")
    assert json.loads(text)["command"] == ["python", "benchmark.py"]
    assert "def measure(" in values["code"]["files"]["benchmark.py"]
    assert values["master"]["backoffLimit"] == 0


@pytest.fixture
def of_two_sizes() -> list[dict[str, Any]]:
    """The rows of a machine that becomes three times as fast; two workers reach 90 % each time."""
    speeds = [(0, 1, 10.0), (0, 2, 18.0), (1, 2, 36.0), (1, 1, 20.0), (2, 1, 30.0), (2, 2, 54.0)]
    return make_rows([Measurement(turn, size, 2 * size, speed) for turn, size, speed in speeds])


def test_speed_is_the_mean_of_the_turns(of_two_sizes: list[dict[str, Any]]) -> None:
    one, two = of_two_sizes
    assert (one["workers"], one["ranks"], one["samplesPerSecond"]) == (1, 2, 20.0)
    assert (two["samplesPerSecond"], two["turns"]) == (36.0, [18.0, 36.0, 54.0])
    # 4.303 x 18 / sqrt(3)
    assert two["interval"] == pytest.approx(44.72, abs=0.01)


def test_efficiency_is_compared_within_a_turn(of_two_sizes: list[dict[str, Any]]) -> None:
    assert [(row["efficiency"], row["efficiencyInterval"]) for row in of_two_sizes] == [
        (1.0, 0.0),
        (0.9, 0.0),
    ]


# Two-sided 95 % quantiles of Student's distribution, by the number of figures.
QUANTILES = {2: 12.706, 3: 4.303, 11: 2.228, 12: 2.201, 30: 2.045, 101: 1.984}


@pytest.mark.parametrize(("number", "quantile"), QUANTILES.items())
def test_intervals_are_those_of_students_distribution(number: int, quantile: float) -> None:
    mean, half = mean_and_interval([float(figure) for figure in range(number)])
    assert mean == (number - 1) / 2
    assert half == pytest.approx(quantile * math.sqrt((number + 1) / 12), rel=1e-3)


def test_figures_of_workers_with_different_images_are_not_compared() -> None:
    workers = [worker(0), worker(1)]
    workers[1]["status"]["containerStatuses"][0]["imageID"] = "team/train@sha256:2"
    with pytest.raises(RunFailedError, match=r"\(team/train@sha256:1, .*:2\)"):
        describe_placement(workers)


pytestmark = pytest.mark.timeout(120)
NAME = "hvd-bench"
MASTER = f"{NAME}-master-1-a"
FIGURES = [(0, 1, 10.0), (1, 2, 19.0), (2, 2, 21.0), (3, 1, 11.0)]


def worker(number: int) -> Any:
    item = pod(f"{NAME}-worker-{number}", "worker", {"running": {}}, node=f"n{number}")
    item["status"]["containerStatuses"][0]["imageID"] = "team/train@sha256:1"
    return of_release(NAME, item)


def measured_line(trial: int, ranks: int, speed: float | None) -> str:
    result = {"trial": trial, "ranks": ranks, "speed": speed, "error": "out of luck"}
    return "MEASURED " + json.dumps(result)


def play(cluster: FakeCluster, helm: StubProgram, *lines: str) -> Callable[[], None]:
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
    lines = (measured_line(*each) for each in FIGURES)
    with meanwhile(play(fake_cluster, helm, *lines)):
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
    lines = (measured_line(*each) for each in FIGURES)
    with meanwhile(play(fake_cluster, helm, *lines)):
        done = hvdchart("bench", spec, "--turns", "2", "-w", file, "-o", "json")
    assert done.code == 5
    assert str(file) in done.errors
    assert [row["workers"] for row in json.loads(done.output)["rows"]] == [1, 2]


def test_workers_on_one_node_are_reported() -> None:
    assert "(n0)" in place_text({"a": "n0", "b": "n0"})


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
    with meanwhile(play(fake_cluster, helm, measured_line(0, 1, 10.0), long, line)):
        done = hvdchart("bench", spec, "--turns", "2")
    assert (done.code, done.output) == (8, "")
    assert says in done.errors
    assert f"{MASTER}: {long}\n" in done.errors
    assert helm.commands()[-1] == "uninstall"
