"""Show a run in the output of a notebook's cell during a call.

It shows the page of the browser in a frame of its own, which cannot access the notebook. Each new
view replaces the previous one.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from html import escape
from typing import Any

from hvdchart.errors import HvdchartError
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.kubectl import Kubectl
from hvdchart.run.state.ranks import begins_rank
from hvdchart.watch.page import write_page
from hvdchart.watch.updates import follow_views
from hvdchart.watch.view_model import View

# Seconds of a call before the view is shown: a short call needs none. And seconds between two
# views: a browser redraws each one completely.
FIRST_VIEW_DELAY_SECONDS = 1.0
WIDGET_INTERVAL_SECONDS = 1.0
# More than the characters of a line that marks the start of a rank, with the tag of a launcher.
_MAX_HELD_CHARACTERS = 200
# Pixels of the parts of the page, and of a row.
_HEAD_PIXELS = 70
_FOOT_PIXELS = 56
_NOTE_PIXELS = 76
_PROGRESS_PIXELS = 150
_CURVE_PIXELS = 342
_TIME_LINE_PIXELS = 260
_TABLE_PIXELS = 96
_ROW_PIXELS = 38
_MAX_SHOWN_ROWS = 10


class Widget:
    """A view for a notebook: `display(Widget(view))`, and `update` with a later one."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._handle: Any = None

    def _repr_html_(self) -> str:
        view = self._view
        rows = min(_MAX_SHOWN_ROWS, len(view.rows))
        height = (
            _HEAD_PIXELS
            + _FOOT_PIXELS
            + _PROGRESS_PIXELS
            + _NOTE_PIXELS * bool(view.stall)
            + _NOTE_PIXELS * bool(view.reason)
        )
        height += _CURVE_PIXELS * (len(view.losses) > 1) + _TIME_LINE_PIXELS * bool(view.spans)
        height += (_TABLE_PIXELS + _ROW_PIXELS * rows) * bool(rows)
        frame = escape(write_page(view, widget=True))
        style = f"width: 100%; height: {height}px; border: 0"
        title = escape(f"run {view.name}")
        return (
            f'<iframe title="{title}" sandbox="allow-scripts" style="{style}" '
            f'srcdoc="{frame}"></iframe>'
        )

    def _repr_pretty_(self, printer: Any, is_cycle: bool) -> None:
        printer.text(f"run {self._view.name}: {self._view.state}")

    def update(self, view: View) -> None:
        """Show a view in the output of this cell; it replaces the previous one."""
        self._view = view
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)


def is_notebook() -> bool:
    """Return whether this runs in the kernel of a notebook, which shows HTML."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def beside_call(
    cluster: Cluster,
    name: str,
    kubectl: Kubectl,
    write: Callable[[str], object],
    is_wanted: bool = True,
    first_view_delay_seconds: float = FIRST_VIEW_DELAY_SECONDS,
    view_interval_seconds: float = WIDGET_INTERVAL_SECONDS,
) -> Iterator[Callable[[str], object]]:
    """Show a run during the block, if this is a notebook; yield the writer for the ranks' output.

    The view shows the ranks, so the lines that mark their start are left out. Outside of a
    notebook, and unless it `is_wanted`, yields `write` unchanged.
    """
    if not is_wanted or not is_notebook():
        yield write
        return
    ended = threading.Event()

    def show() -> None:
        if ended.wait(first_view_delay_seconds):
            return
        widget = None
        last = float("-inf")
        # A failure to get a view must not end the call.
        with suppress(HvdchartError):
            for view in follow_views(cluster, name, kubectl):
                is_last = ended.is_set()
                if is_last or time.monotonic() - last >= view_interval_seconds:
                    last = time.monotonic()
                    widget = widget or Widget(view)
                    widget.update(view)
                if is_last:
                    return

    lines = _WithoutBeginnings(write)
    threading.Thread(target=show, daemon=True).start()
    try:
        yield lines.write
    finally:
        ended.set()
        lines.close()


class _WithoutBeginnings:
    """Leaves out the lines that mark the start of ranks, in output that comes in pieces."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._held = ""

    def write(self, text: str) -> None:
        *lines, rest = (self._held + text).split("\n")
        shown = "".join(f"{line}\n" for line in lines if not begins_rank(line))
        # Hold back text that may become such a line. A prompt or a progress bar cannot.
        may_begin = rest.startswith("[") and not rest.endswith("\r")
        self._held = rest if may_begin and len(rest) < _MAX_HELD_CHARACTERS else ""
        shown += "" if self._held else rest
        if shown:
            self._write(shown)

    def close(self) -> None:
        """Write the text that was held back."""
        if self._held and not begins_rank(self._held):
            self._write(self._held)
        self._held = ""
