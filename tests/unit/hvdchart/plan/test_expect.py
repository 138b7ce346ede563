"""What the model of a training step expects, and how near published figures are."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from hvdchart.plan.expect import PUBLISHED, Network, Work, expect, exposed_seconds
from tests.fakes.fixtures import Command

WORK = Work("resnet50", 64, 40.0)
SPEC = Path(__file__).parents[4] / "values" / "xeon-8180-16.spec.yaml"


def test_published_figures_are_within_some_points_of_the_model() -> None:
    errors = [abs(each.expected() - each.efficiency) for each in PUBLISHED]
    assert statistics.fmean(errors) < 0.035
    # VGG-16 on few hosts hides more of its communication: its largest gradients come first.
    assert sorted(errors)[-3] < 0.05
    assert max(errors) < 0.12


def test_a_step_is_the_sum_of_its_parts() -> None:
    # Two hosts of a rank: 102.4 MB in each direction at 1.25 GB/s, and 2 messages in 2 parts.
    network = Network(10)
    exposed = exposed_seconds(WORK, network, 2, 2)
    assert exposed == pytest.approx(0.5 * (102.4e6 / 1.25e9 + 2 * 2 * 30e-6))
    assert expect(WORK, network, 2, 1) == pytest.approx(1.6 / (1.6 + exposed))


def test_a_stream_of_tcp_does_not_fill_a_wide_link() -> None:
    assert expect(WORK, Network(100), 8, 1) == expect(WORK, Network(15), 8, 1)
    assert expect(WORK, Network(100, rdma=True), 8, 1) > expect(WORK, Network(100), 8, 1)


def test_plan_prints_what_to_expect_beside_published_figures(hvdchart: Command) -> None:
    done = hvdchart("plan", SPEC, "--expect", "resnet50", "--speed", "45", "-o", "json")
    assert done.code == 0, done.errors
    document = json.loads(done.output)
    assert [row["workers"] for row in document["expected"]] == [1, 2, 4, 8, 16]
    assert document["expected"][-1]["efficiency"] == pytest.approx(0.946, abs=0.001)
    assert (document["published"][0]["published"], document["published"][0]["ranks"]) == (0.92, 32)
    shown = hvdchart("plan", SPEC, "--expect", "vgg16", "--speed", "45", "--gbit", "1").output
    for part in ("link of 1 Gbit/s (TCP, of which", "- 30 us for each message; ", "expected speed"):
        assert part in shown


def test_the_page_has_the_models_own_answers() -> None:
    page = (SPEC.parents[1] / "docs" / "scaling.md").read_text()
    for each in PUBLISHED:
        ranks = each.hosts * each.ranks_per_host
        shares = f"{each.efficiency:.0%} | {each.expected():.0%}"
        assert f"| {each.where} | {each.work.model} | {ranks} | {shares} |\n" in page
