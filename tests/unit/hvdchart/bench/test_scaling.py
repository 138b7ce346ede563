"""The run that measures several sizes in turns, and the figures that follow from its speeds."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

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
from tests.support.specs import plan_of_nodes
from tests.unit.hvdchart.objects import RUNNING, pod


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The plan of a spec whose run has a mode of its own and a spare."""
    nodes = "{name: x, count: 16, sockets: 2, coresPerSocket: 28, threadsPerCore: 2, spares: 1}"
    return plan_of_nodes(nodes, "launch: {mode: direct}\n")


@pytest.fixture(scope="module")
def made(plan: Plan) -> Plan:
    """The plan of the benchmark's run."""
    return bench_plan(plan, turns_of([1, 4], 3), ["python", "benchmark.py"])


@pytest.fixture(scope="module")
def values(made: Plan) -> dict[str, Any]:
    """The values of the benchmark's run."""
    return checked_values(made)


@pytest.fixture
def of_two_sizes() -> list[dict[str, Any]]:
    """The rows of a machine that becomes three times as fast; two workers reach 90 % each time."""
    speeds = [(0, 1, 10.0), (0, 2, 18.0), (1, 2, 36.0), (1, 1, 20.0), (2, 1, 30.0), (2, 2, 54.0)]
    return make_rows([Measurement(turn, size, 2 * size, speed) for turn, size, speed in speeds])


def test_sizes_are_measured_in_turns() -> None:
    assert turns_of([1, 4], 3) == [1, 4, 4, 1, 1, 4]


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


def test_speed_is_the_mean_of_the_turns(of_two_sizes: list[dict[str, Any]]) -> None:
    small, large = of_two_sizes
    assert (small["workers"], small["ranks"], small["samplesPerSecond"]) == (1, 2, 20.0)
    assert (large["samplesPerSecond"], large["turns"]) == (36.0, [18.0, 36.0, 54.0])
    # 4.303 x 18 / sqrt(3)
    assert large["interval"] == pytest.approx(44.72, abs=0.01)


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
    workers = [pod(f"hvd-worker-{number}", "worker", RUNNING) for number in (0, 1)]
    for number, worker in enumerate(workers):
        worker["status"]["containerStatuses"][0]["imageID"] = f"team/train@sha256:{number}"
    with pytest.raises(RunFailedError, match=r"\(team/train@sha256:0, .*:1\)"):
        describe_placement(workers)


def test_workers_on_one_node_are_reported() -> None:
    assert "(n0)" in place_text({"a": "n0", "b": "n0"})
