"""The view of a run for a terminal, drawn with rich. Pure: nothing here writes to a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hvdchart.run.state.progress import duration_text
from hvdchart.text import percent_range
from hvdchart.watch.view_model import Mark, Row, View

_BLOCKS = " ▁▂▃▄▅▆▇█"
_CURVE_LINES = 4
_MAX_SHOWN_MARKS = 4
# The styles of the states of runs and ranks, of marks, and of the periods of a time line.
_STYLES = {
    "running": "green",
    "finished": "green",
    "finishing": "cyan",
    "waiting": "yellow",
    "retrying": "yellow",
    "failed": "red",
    "not found": "red",
}
_SIGNS = {
    "stage": ("·", "dim"),
    "attempt": ("▶", "green"),
    "fault": ("✕", "red"),
    "stall": ("‖", "magenta"),
    "warning": ("!", "yellow"),
    "end": ("■", "green"),
}
_PERIODS = {
    "waiting": ("░", "yellow"),
    "training": ("█", "green"),
    "lost": ("▒", "red"),
    "ending": ("▓", "cyan"),
}
# Terminal widths, in characters, that decide which columns of the table are shown.
_NARROW_CHARACTERS = 60
_WIDE_CHARACTERS = 100


def draw_sparkline(values: Sequence[float], width: int, height: int = 1) -> list[str]:
    """Return the curve of some numbers in block characters: `height` lines, the top one first.

    The lowest value also has a block, to differ from a missing value. Without values, the lines are
    empty.
    """
    if not values or width < 1:
        return [""] * height
    width = min(width, len(values))
    # Each column shows the mean of its part.
    edges = [len(values) * column // width for column in range(width + 1)]
    means = [math.fsum(values[begin:end]) / (end - begin) for begin, end in pairwise(edges)]
    lowest = min(means)
    extent = max(means) - lowest
    steps = len(_BLOCKS) - 1
    levels = [
        1 + round((mean - lowest) / extent * (height * steps - 1)) if extent else 1
        for mean in means
    ]
    return [
        "".join(_BLOCKS[min(steps, max(0, level - steps * row))] for level in levels)
        for row in reversed(range(height))
    ]


class Screen:
    """A view as rich draws it, in as many lines as the terminal has."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        height = options.height or console.size.height
        parts = [
            _head(self._view, width),
            *_problems(self._view),
            *_progress(self._view),
            *_curve(self._view, width),
            *_time_line(self._view, width),
        ]
        used = sum(len(console.render_lines(part, options, pad=False)) for part in parts)
        # The table gets its share of the remaining lines, and the log gets the rest.
        left = max(0, height - used - 2)
        rows = self._view.rows
        most = max(3, min(len(rows), left * 2 // 3))
        if rows:
            parts.append(_table(self._view, width, most))
            left -= min(len(rows), most) + 2
        parts += _log(self._view, left)
        yield Group(*parts)


def line_of(view: View) -> str:
    """Format the view in one line, without a terminal: state, progress, and problems."""
    parts: list[str] = [view.state]
    if view.state == "waiting":
        parts.append(f"{view.workers_ready} of {view.workers_wanted} workers up")
    if view.attempt > 1:
        parts.append(f"attempt {view.attempt} of {view.attempts}")
    if view.progress:
        parts.append(_progress_text(view))
    if view.stall:
        parts.append(f"stalled: {view.stall.text()}")
    if view.reason:
        parts.append(view.reason)
    return f"{view.name}: {', '.join(parts)}"


def _progress_text(view: View) -> str:
    """Format the progress; a stalled run has no remaining time to show."""
    is_still = view.over or view.stall is not None
    return view.progress.text(is_over=is_still) if view.progress else ""


def _head(view: View, width: int) -> RenderableType:
    """Return the name, and at the right the state, the attempt and the time."""
    left = Text(view.name, style="bold")
    if width >= _NARROW_CHARACTERS:
        left.append(f"  {view.namespace}", style="dim")
    style = _STYLES.get(view.state, "")
    right = Text.assemble(("● ", style), (view.state, f"bold {style}"))
    if view.attempt > 1:
        right.append(f"  attempt {view.attempt} of {view.attempts}", style="dim")
    if view.seconds is not None:
        right.append(f"  {duration_text(view.seconds)}", style="dim")
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(left, right)
    return grid


def _problems(view: View) -> list[RenderableType]:
    """Return the stall, the reason and the remedy."""
    lines: list[RenderableType] = []
    if view.stall:
        lines.append(Text.assemble(("stalled  ", "bold magenta"), view.stall.text()))
    if view.reason:
        style = "bold red" if view.state == "failed" else "bold yellow"
        lines.append(Text.assemble(("why  ", style), view.reason))
    if view.remedy:
        lines.append(Text.assemble(("what to do  ", "bold"), view.remedy))
    return lines


def _progress(view: View) -> list[RenderableType]:
    """Return the bar, and the step, the speed and the remaining time."""
    progress = view.progress
    if progress is None:
        up = f"{view.workers_ready} of {view.workers_wanted} workers up"
        return [Text(up, style="dim")] if view.state in ("waiting", "running") else []
    lines: list[RenderableType] = [Text(_progress_text(view))]
    if progress.steps:
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(ratio=1)
        grid.add_column(justify="right", no_wrap=True)
        share = min(1.0, progress.step / progress.steps)
        # Show 100 % only at the last step.
        percent = f"{math.floor(100 * share):3} %"
        bar = ProgressBar(total=1.0, completed=share, complete_style="blue", finished_style="green")
        grid.add_row(bar, percent)
        lines.insert(0, grid)
    return lines


def _curve(view: View, width: int) -> list[RenderableType]:
    """Return the losses as blocks, with the first and the last one."""
    losses = view.losses
    if len(losses) < 3:
        return []
    values = [loss for _, loss in losses]
    label = f"loss {values[0]:.4g} → {values[-1]:.4g}"
    rows = draw_sparkline(values, width, _CURVE_LINES)
    return [Text(""), Text(label, style="dim"), Text("\n".join(rows), style="cyan")]


def _time_line(view: View, width: int) -> list[RenderableType]:
    """Return the parts of the run as a bar, the marks below it, and the last ones in words."""
    if not view.spans:
        return []
    begin = view.spans[0].begin
    extent = max(1.0, view.spans[-1].end - begin)

    def column(at: float) -> int:
        return min(width - 1, max(0, int((at - begin) / extent * width)))

    bar = Text()
    for span in view.spans:
        sign, style = _PERIODS[span.period]
        cells = column(span.end) - column(span.begin)
        bar.append(sign * cells, style=style)
    bar.append(_PERIODS[view.spans[-1].period][0], style=_PERIODS[view.spans[-1].period][1])
    below: list[tuple[str, str]] = [(" ", "")] * width
    for mark in view.marks:
        if mark.kind != "stage":
            below[column(mark.at)] = _SIGNS[mark.kind]
    lines: list[RenderableType] = [Text(""), bar, Text.assemble(*below)]
    return [*lines, *(_mark(mark) for mark in view.marks[-_MAX_SHOWN_MARKS:])]


def _mark(mark: Mark) -> Text:
    sign, style = _SIGNS[mark.kind]
    at = datetime.fromtimestamp(mark.at).strftime("%H:%M:%S")
    text = Text.assemble((at, "dim"), (f" {sign} ", style), mark.text)
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text


class _Column(NamedTuple):
    """A column of the table, for terminals of a least width; without a text, it is left out."""

    title: str
    text: Callable[[Row], Text | str]
    least_width: int = 0
    is_number: bool = True


def _table(view: View, width: int, most: int) -> RenderableType:
    """Return a row for each rank; leave out columns that are empty or do not fit.

    If not all ranks fit, those with problems come first.
    """
    rows = list(view.rows)
    if len(rows) > most:
        rows = sorted(rows, key=lambda row: row.state == "Running")[:most]
    hidden = len(view.rows) + view.more_rows - len(rows)
    table = Table(box=None, expand=width < _WIDE_CHARACTERS, pad_edge=False, header_style="dim")
    shown = []
    for column in _COLUMNS:
        # Plain texts become Text: in a string, rich reads brackets as styles.
        cells = [Text.assemble(column.text(row)) for row in rows]
        if width >= column.least_width and any(cells):
            justify: JustifyMethod = "right" if column.is_number else "left"
            table.add_column(column.title, justify=justify, no_wrap=True)
            shown.append(cells)
    for row_cells in zip(*shown, strict=True):
        table.add_row(*row_cells)
    notes: list[RenderableType] = [Text(""), table]
    if hidden:
        notes.append(Text(f"and {hidden} more", style="dim"))
    if view.usage_problem:
        note = Text(f"no CPU and memory: {view.usage_problem}", style="dim")
        note.no_wrap = True
        note.overflow = "ellipsis"
        notes.append(note)
    return Group(*notes)


def _format(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _memory(row: Row) -> str:
    return "" if row.memory is None else f"{row.memory / 2**20:,.0f} Mi"


def _gpu_memory(row: Row) -> str:
    if row.gpu_memory is None:
        return ""
    used, size = row.gpu_memory
    return f"{used / 2**30:.1f} of {size / 2**30:.0f} Gi"


def _rank(row: Row) -> Text:
    return Text("" if row.rank is None else str(row.rank), style="bold")


def _row_state(row: Row) -> Text:
    style = {"Running": "green", "Stalled": "bold magenta", "Ended": "dim"}.get(row.state, "yellow")
    return Text(row.state, style=style)


_COLUMNS = (
    _Column("RANK", _rank),
    _Column("STATE", _row_state, is_number=False),
    _Column("STEP", lambda row: _format(row.step, "{:,}")),
    _Column("SAMPLES/S", lambda row: _format(row.rate, "{:,.1f}")),
    _Column("CPU", lambda row: _format(row.cpus, "{:.2f}"), _NARROW_CHARACTERS),
    _Column("MEMORY", _memory, _NARROW_CHARACTERS),
    _Column("GPU", lambda row: percent_range(row.gpu_shares), _NARROW_CHARACTERS),
    _Column("GPU MEMORY", _gpu_memory, _NARROW_CHARACTERS),
    _Column("POD", lambda row: row.pod, _NARROW_CHARACTERS, is_number=False),
    _Column("NODE", lambda row: row.node, _WIDE_CHARACTERS, is_number=False),
)


def _log(view: View, most: int) -> list[RenderableType]:
    """Return the last lines of the log that fit."""
    if most < 2 or not view.log:
        return []
    lines = view.log[-(most - 1) :]
    text = Text("\n".join(lines), style="dim", no_wrap=True, overflow="ellipsis")
    return [Padding(text, (1, 0, 0, 0))]
