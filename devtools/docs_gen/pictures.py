"""Draws a demo in a terminal, docs/pictures/demo.svg.

docs/pictures/demo.txt is the output of `make demo`, shortened by hand. The other pictures there are
drawn by hand.
"""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"


def generated_texts() -> dict[Path, str]:
    """The text that docs/pictures/demo.svg should have."""
    console = Console(record=True, width=104, file=io.StringIO(), force_terminal=True)
    for line in (FOLDER / "demo.txt").read_text("utf-8").splitlines():
        text = Text(line)
        text.highlight_regex(r"^\$ .*", "bold cyan")
        text.highlight_regex(r"^done ", "green")
        text.highlight_regex(r"^  \[hvd[^\]]*\]", "dim")
        console.print(text, soft_wrap=True)
    picture = console.export_svg(title="make demo", theme=MONOKAI, unique_id="demo")
    return {FOLDER / "demo.svg": f"{picture}\n"}
