"""What the tables of the benchmarks say of a goal."""

from __future__ import annotations

import pytest

from tests.bench.report import judge_figures


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        pytest.param([1.00, 1.01, 1.02], "reached", id="all of the interval reaches it"),
        pytest.param([0.90, 0.91, 0.92], "missed", id="nothing of the interval reaches it"),
        pytest.param([0.93, 0.99, 1.05], "not decided", id="the interval is wider than the margin"),
        pytest.param([1.01], "not decided", id="one figure has no interval"),
    ],
)
def test_goal_is_decided_only_by_the_whole_interval(shares: list[float], expected: str) -> None:
    assert judge_figures(shares, 0.98) == expected
