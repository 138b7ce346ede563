"""What benchmarks make of their figures, and ranks that train in turns, as real processes."""

from __future__ import annotations

import pytest

from tests.bench.bench_bare import HOST, NETWORKS, PODS, Measured
from tests.bench.report import verdict


def test_speeds_are_compared_within_a_turn() -> None:
    figures = Measured(ranks=1)
    figures.seconds["resnet50"] = [{HOST: [1.0, 3.0], PODS: [2.0, 3.0]}]
    assert figures.ratios("resnet50") == [0.75]
    figures.seconds["resnet50"].append({HOST: [1.0], PODS: [4.0]})
    assert figures.ratios("resnet50") == [0.75, 0.25], "one for each start"
    assert figures.speed("resnet50", HOST) == NETWORKS["resnet50"][0] * 3 / 5.0


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([1.0, 1.002, 0.998], "within the interval"),
        ([1.0, 1.0001, 0.9999], "reached"),
        ([0.99, 0.9901, 0.9899], "missed"),
        # One figure says nothing.
        ([1.5], "within the interval"),
    ],
)
def test_verdict_is_as_sure_as_the_interval(figures: list[float], expected: str) -> None:
    assert verdict(figures, 0.998) == expected
