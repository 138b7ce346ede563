"""What tests/bench/bench_scale.py and bench_pipeline.py make of their figures."""

from __future__ import annotations

import dataclasses

import pytest

from hvdchart.plan.expect import HIDDEN, PUBLISHED
from tests.bench import bench_pipeline, bench_scale
from tests.bench.bench_scale import APART, BASE, BATCH, ONE, PAIRS, Measured
from tests.bench.turns import in_turns

GRADIENTS = 102.4e6


def made(compute: float, shared: float, exposed: float, reduced: float, message: float) -> Measured:
    """What a machine would show: a rank computes for so many seconds, `shared` times as long beside
    another one, and then waits for `exposed` seconds; averaging alone takes `reduced`.
    """
    step = compute * shared
    speeds = {ONE: [BATCH / compute] * 3, APART: [2 * BATCH / step] * 3}
    speeds |= {pair: [2 * BATCH / (step + exposed)] * 3 for pair in PAIRS}
    alone = {
        pair: [reduced + 161 * message * ("no fusion" in pair)] * 3 for pair in PAIRS
    }  # fmt: skip
    return Measured(speeds, alone, 161)


def test_efficiency_is_that_of_a_rank_turn_by_turn() -> None:
    measured = Measured({ONE: [2.0, 4.0], APART: [3.0, 8.0], BASE: [2.7, 8.0]})
    assert measured.efficiency(BASE, ONE) == pytest.approx([2.7 / 4, 1.0])
    assert measured.efficiency(BASE, APART) == pytest.approx([0.9, 1.0])
    assert measured.efficiency(APART, ONE) == pytest.approx([0.75, 1.0])
    measured.speeds[BASE].append(1.0)
    with pytest.raises(ValueError, match="shorter"):
        measured.efficiency(BASE, APART)


@pytest.mark.parametrize("hidden", [0.0, 0.4, 0.9])
def test_the_model_is_fitted_to_what_was_measured(hidden: float) -> None:
    # 0.1 s for 102.4 MB: 1.024 GB/s; 50 us for each of 161 messages.
    measured = made(1.0, 1.6, (1 - hidden) * 0.1, 0.1, 50e-6)
    fitted = bench_scale.fit_model(measured)
    assert fitted.work.seconds == pytest.approx(1.6)
    assert fitted.bytes_per_second == pytest.approx(GRADIENTS / 0.1)
    assert fitted.message == pytest.approx(50e-6)
    # The model adds 40 us for its own messages.
    assert fitted.scale == pytest.approx((1 - hidden) / (1 - HIDDEN), rel=1e-3)
    assert fitted.exposed == pytest.approx(1 - hidden, abs=1e-3)


def test_a_pair_that_is_no_slower_hides_everything() -> None:
    fitted = bench_scale.fit_model(made(1.0, 1.6, -0.01, 0.1, 0.0))
    assert (fitted.scale, fitted.exposed) == (0.0, 0.0)


def test_expectations_are_of_the_published_figures_that_were_asked_for() -> None:
    fitted = bench_scale.fit_model(made(1.0, 1.6, 0.1, 0.1, 0.0))
    rows = list(bench_scale.expectations(fitted))
    assert ("Xeon, 10 Gbit/s", "resnet50", 32, 0.92) in [row[:4] for row in rows]
    expected = [each for each in PUBLISHED if each.hosts * each.ranks_per_host in (32, 128)]
    assert len(rows) == len(expected) == 7
    # Nothing hidden is worse than the model's half.
    assert all(ours < model < 1 for *_, model, ours in rows)


def test_table_tells_the_machines_part_from_horovods() -> None:
    measured = made(1.0, 1.6, 0.032, 0.1, 0.0)
    rows = bench_scale.measured_table(measured).splitlines()[2:]
    assert len(rows) == 2 + len(PAIRS)
    assert rows[0] == "| one rank | 4.00 ± 0.00 |  |  |  |  |  |"
    assert rows[1].split(" | ")[3] == "62.5% ± 0.0%"
    assert rows[2] == (
        "| MPI | 4.90 ± 0.00 | 98.0% ± 0.0% | 61.3% ± 0.0% | 32 ms | 100 ms | reached |"
    )
    fitted = bench_scale.fit_model(measured)
    text = bench_scale.fitted_text(fitted)
    assert "102 MB of gradients at 1.02 GB/s" in text
    for seconds, cost in ((0.000242, "242 µs"), (-0.000242, "no measurable time")):
        one = dataclasses.replace(fitted, message=seconds)
        assert f", and {cost} for each additional message" in bench_scale.fitted_text(one)
    assert "| Xeon, 10 Gbit/s | resnet50 | 32 | 92% | 95% |" in text


def test_each_turn_begins_with_another() -> None:
    assert list(in_turns("abc", 4)) == list("abcbcacababc")


def test_gap_is_of_the_synthetic_speed_in_the_same_turn() -> None:
    speeds = {"synthetic": [10.0, 20.0], "naive": [5.0, 10.0], "pipeline.py": [10.0, 20.0]}
    lines = bench_pipeline.table({1: speeds, 2: speeds}).splitlines()
    assert lines[:2] == [
        "| Source | 1 rank, images/s | gap | 2 ranks, images/s | gap |",
        "|---|---|---|---|---|",
    ]
    assert lines[2] == "| synthetic | 15.0 |  | 15.0 |  |"
    assert lines[3] == "| naive | 7.5 | 50.0% ± 0.0% | 7.5 | 50.0% ± 0.0% |"
    assert lines[-1] == (
        "The goal for pipeline.py, a gap of at most 2%: reached with 1 rank, reached with 2 ranks."
    )
    speeds["pipeline.py"] = [9.0, 18.0]
    assert bench_pipeline.table({1: speeds}).endswith("missed with 1 rank.")
