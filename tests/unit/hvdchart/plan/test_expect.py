"""What the model of a training step expects, and how near published figures are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hvdchart.plan.expect import Network, Work, expect
from tests.fakes.fixtures import Command

SPEC = Path(__file__).parents[4] / "values" / "xeon-8180-16.spec.yaml"
TCP = Network(25)
ROCE = Network(25, rdma=True)


@pytest.mark.parametrize(
    ("work", "network", "hosts", "ranks", "published"),
    [
        (Work("resnet50", 64, 45), Network(10), 16, 2, 0.92),
        (Work("inception3", 64, 134.4), TCP, 32, 4, 0.88),
        (Work("resnet101", 64, 119.4), TCP, 32, 4, 0.88),
        (Work("inception3", 64, 134.4), ROCE, 128, 4, 0.90),
        (Work("resnet101", 64, 119.4), ROCE, 128, 4, 0.90),
        (Work("vgg16", 64, 130.9), ROCE, 128, 4, 0.68),
        (Work("vgg16", 64, 130.9), TCP, 4, 4, 0.63),
    ],
)
def test_published_figures_are_within_some_points_of_the_model(
    work: Work, network: Network, hosts: int, ranks: int, published: float
) -> None:
    assert expect(work, network, hosts, ranks) == pytest.approx(published, abs=0.05)


WORK = Work("resnet50", 64, 40.0)


def test_a_step_is_the_sum_of_its_parts() -> None:
    # Two hosts of a rank: 102.4 MB in each direction at 1.25 GB/s, and 2 messages in 2 parts.
    exposed = 0.5 * (102.4e6 / 1.25e9 + 2 * 2 * 30e-6)
    assert expect(WORK, Network(10), 2, 1) == pytest.approx(1.6 / (1.6 + exposed))


def test_a_stream_of_tcp_does_not_fill_a_wide_link() -> None:
    assert expect(WORK, Network(100), 8, 1) == expect(WORK, Network(15), 8, 1)


def test_rdma_fills_a_wide_link() -> None:
    assert expect(WORK, Network(100, rdma=True), 8, 1) > expect(WORK, Network(100), 8, 1)


def test_plan_expects_an_efficiency_for_each_size(hvdchart: Command) -> None:
    done = hvdchart("plan", SPEC, "--expect", "resnet50", "--speed", "45", "-o", "json")
    assert done.code == 0, done.errors
    expected = json.loads(done.output)["expected"]
    assert [row["workers"] for row in expected] == [1, 2, 4, 8, 16]
    assert expected[-1]["efficiency"] == pytest.approx(0.946, abs=0.001)


@pytest.mark.parametrize(
    "part",
    ["link of 1 Gbit/s (TCP, of which", "- 30 us for each message; ", "expected speed"],
)
def test_plan_prints_what_to_expect_with_its_assumptions(hvdchart: Command, part: str) -> None:
    done = hvdchart("plan", SPEC, "--expect", "vgg16", "--speed", "45", "--gbit", "1")
    assert part in done.output
