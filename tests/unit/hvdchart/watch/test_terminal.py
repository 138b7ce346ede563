"""The view in a terminal."""

from __future__ import annotations

from typing import Literal

import pytest
from rich.console import Console

from hvdchart.watch.terminal import Screen, draw_sparkline, line_of
from hvdchart.watch.view_model import View
from tests.unit.hvdchart.watch import sample


def drawn(view: View, width: int, *, has_colours: bool = True) -> str:
    system: Literal["standard"] | None = "standard" if has_colours else None
    console = Console(width=width, height=40, record=True, force_terminal=True, color_system=system)
    with console.capture() as captured:
        console.print(Screen(view))
    return captured.get()


@pytest.mark.parametrize("width", [30, 60, 100, 200])
@pytest.mark.parametrize(
    "view", [sample.stalled_view(), sample.gpus_view(), sample.finished_view()], ids=str
)
def test_the_view_fits_each_terminal(view: View, width: int) -> None:
    lines = drawn(view, width, has_colours=False).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 40


def test_a_stalled_rank_is_named_with_its_line() -> None:
    text = drawn(sample.stalled_view(), 120)
    assert "train.py:41 in next_batch" in text
    assert "Stalled" in text
    assert "3,139" in text


def test_what_no_pod_says_has_no_column() -> None:
    assert "SAMPLES/S" in drawn(sample.training_view(), 100)
    assert "SAMPLES/S" not in drawn(sample.finished_view(), 100)


def test_the_use_of_gpus_is_shown_where_it_is_known() -> None:
    text = drawn(sample.gpus_view(), 140)
    assert "40-93%" in text
    assert "62.0 of 80 Gi" in text
    assert "GPU" not in drawn(sample.training_view(), 140)


def test_without_colours_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in drawn(sample.training_view(), 100)


def test_what_is_no_terminal_gets_a_line() -> None:
    line = line_of(sample.stalled_view())
    assert line.startswith("hvd: running, attempt 2 of 4, step 3140 of 5000")
    assert "stalled: rank 1 on hvd-worker-1" in line
    assert "left" not in line


@pytest.mark.parametrize(
    ("values", "width", "height", "expected"),
    [
        ([], 4, 1, [""]),
        ([1.0], 4, 1, ["▁"]),
        ([1.0, 1.0, 1.0], 3, 1, ["▁▁▁"]),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 8, 1, ["▁▂▃▄▅▆▇█"]),
        # Two values in each column have their mean.
        ([0.0, 2.0, 6.0, 10.0], 2, 1, ["▁█"]),
        ([0.0, 15.0], 2, 2, [" █", "▁█"]),
        ([1.0, 2.0], 0, 2, ["", ""]),
    ],
)
def test_a_sparkline_is_drawn_in_blocks(
    values: list[float], width: int, height: int, expected: list[str]
) -> None:
    assert draw_sparkline(values, width, height) == expected
