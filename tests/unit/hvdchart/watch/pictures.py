"""Takes the pictures of the page for the documentation: `make pictures` writes them."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from hvdchart.watch.model import View
from hvdchart.watch.page import page
from hvdchart.watch.terminal import Screen
from tests.support.browser import PROGRAM, take_picture
from tests.unit.hvdchart.watch import sample

FOLDER = Path(__file__).parents[4] / "docs" / "pictures"
# Pixels: as many lines as have the rows of all ranks.
WIDTH = 1120
HEIGHT = 1258
NOTE = 86
NAME = "resnet50"
# Bytes of a picture.
MOST = 150_000


def main() -> int:
    """Write the pictures; 1 without a browser, or when one is too large."""
    if PROGRAM is None:
        print("no program chromium is on PATH: apt-get install chromium", file=sys.stderr)
        return 1
    code = 0
    stalled = renamed(sample.stalled_view())
    pictures = {"watch-light": renamed(sample.training_view()), "watch-dark": stalled}
    for name, view in pictures.items():
        target = FOLDER / f"{name}.png"
        with TemporaryDirectory() as folder:
            file = Path(folder, "page.html")
            file.write_text(page(view))
            is_dark = name.endswith("dark")
            size = (WIDTH, HEIGHT + (NOTE if view.stall else 0))
            take_picture(file.as_uri(), target, size, Path(folder, "profile"), is_dark=is_dark)
        written = target.stat().st_size
        print(f"{target.name}: {written} bytes")
        if written > MOST:
            print(f"{target.name}: more than {MOST} bytes", file=sys.stderr)
            code = 1
    draw_terminal(FOLDER / "watch-terminal.svg", stalled)
    return code


def renamed(view: View) -> View:
    """The view of a run that has a name as people give it."""

    def rename(text: str) -> str:
        return text.replace("hvd-", f"{NAME}-")

    return replace(
        view,
        name=NAME,
        rows=tuple(replace(row, pod=rename(row.pod)) for row in view.rows),
        marks=tuple(replace(mark, text=rename(mark.text)) for mark in view.marks),
        stall=replace(view.stall, worker=rename(view.stall.worker)) if view.stall else None,
        log=tuple(map(rename, view.log)),
    )


def draw_terminal(target: Path, view: View) -> None:
    """Write the view as a terminal shows it."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(
            file=nowhere,
            width=100,
            height=34,
            record=True,
            force_terminal=True,
            color_system="truecolor",
        )
        console.print(Screen(view))
    text = console.export_svg(title=f"hvdchart watch {view.name}", unique_id="watch")
    # The picture loads no font from a network.
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
    target.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
