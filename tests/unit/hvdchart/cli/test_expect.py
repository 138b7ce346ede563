"""The tables of `plan --expect`."""

from __future__ import annotations

import pytest

from hvdchart.cli.expect import print_expectation


def test_each_number_of_workers_and_each_published_figure_is_a_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = {"workers": 16, "ranks": 32, "imagesPerSecond": 1361.5, "efficiency": 0.9456}
    figure = {"where": "a paper", "model": "vgg16", "ranks": 128, "published": 0.79}
    print_expectation(
        {
            "expected": [row],
            "assumptions": ["one thing", "another"],
            "published": [{**figure, "model expects": 0.8123}],
        }
    )
    printed = capsys.readouterr().out
    rows = [line.strip("│").split("│") for line in printed.splitlines() if "│" in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["16", "32", "1361.5", "95%"],
        ["a paper", "vgg16", "128", "79%", "81%"],
    ]
    assert "Assumed:\n- one thing\n- another\n" in printed
