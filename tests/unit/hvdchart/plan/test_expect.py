"""What the model of a training step expects, and how near published figures are."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from hvdchart.plan.expect import PUBLISHED, Network, Work, expect, exposed_seconds, fit
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
    expected = expect(WORK, network, 2, 1)
    assert expected.efficiency == pytest.approx(1.6 / (1.6 + exposed))
    assert expected.speed == pytest.approx(80 * expected.efficiency)


def test_a_stream_of_tcp_does_not_fill_a_wide_link() -> None:
    assert expect(WORK, Network(100), 8, 1) == expect(WORK, Network(15), 8, 1)
    assert (
        expect(WORK, Network(100, rdma=True), 8, 1).speed > expect(WORK, Network(100), 8, 1).speed
    )


@pytest.mark.parametrize("scale", [0.0, 0.4, 1.0, 3.0])
def test_the_model_is_fitted_to_measurements(scale: float) -> None:
    true = Network(10, scale=scale)
    rows = [expect(WORK, true, hosts, 2) for hosts in (1, 2, 4, 8)]
    measured = [(row.hosts, row.ranks, row.speed) for row in rows]
    assert fit(WORK, Network(10), measured) == pytest.approx(scale, abs=1e-9)
    assert fit(WORK, Network(10), measured[:1]) == 1.0
    # Faster than alone: noise, and no network of negative time.
    assert fit(WORK, Network(10), [(2, 2, 100.0)]) == 0.0


def result(tmp_path: Path, nodes: list[str], batch: int = 64) -> Path:
    """A result of `hvdchart bench` on these nodes."""
    rows = [expect(WORK, Network(10, scale=2.0), hosts, 2) for hosts in (1, 2)]
    document = {
        "session": "s", "machines": [], "name": "run", "time": "t", "image": "i", "turns": 2,
        "nodes": {f"worker-{n}": node for n, node in enumerate(nodes)},
        "command": ["python", "benchmark.py", "--model", "resnet50", "--batch-size", str(batch)],
        "rows": [{"workers": row.hosts, "ranks": row.ranks, "imagesPerSecond": row.speed,
                  "interval": 0.1, "efficiency": row.efficiency, "efficiencyInterval": 0.01}
                 for row in rows],
    }  # fmt: skip
    file = tmp_path / f"bench-{len(set(nodes))}-{batch}.json"
    file.write_text(json.dumps(document))
    return file


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


def test_plan_fits_the_model_to_a_result_of_bench(hvdchart: Command, tmp_path: Path) -> None:
    def measured(*nodes: str, model: str = "resnet50", batch: int = 64) -> Any:
        file = result(tmp_path, list(nodes), batch)
        return hvdchart("plan", SPEC, "--expect", model, "--measured", file)

    output = measured("a", "b").output
    assert ", times 2.00 as fitted to measurements; " in output
    assert "a rank alone trains 40 samples/s with batches of 64: 1.600 s" in output
    # The size of a batch is that of the measurement.
    assert "with batches of 32: 0.800 s" in measured("a", "b", batch=32).output
    # On one node nothing was said of a network.
    assert "fitted" not in measured("a", "a").output
    other = measured("a", "b", model="vgg16")
    assert (other.code, "was measured with resnet50" in other.errors) == (5, True)


def test_the_page_has_the_models_own_answers() -> None:
    page = (SPEC.parents[1] / "docs" / "scaling.md").read_text()
    for each in PUBLISHED:
        ranks = each.hosts * each.ranks_per_host
        shares = f"{each.efficiency:.0%} | {each.expected():.0%}"
        assert f"| {each.where} | {each.work.model} | {ranks} | {shares} |\n" in page
