"""Draws the pictures of the documentation: the parts of a run, the icon, a demo in a terminal.

`python -m devtools.docs_gen.pictures` writes docs/pictures/*.svg; with `--check` it exits with
status 1 when one differs. docs/pictures/demo.txt is the output of `make demo`, shortened by hand.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from devtools.docs_gen.generated import write_or_compare

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
_STYLE = """\
<style>
  text { font-family: system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2933 }
  .title { font-size: 17px; font-weight: 600 }
  .line { font-size: 14px; fill: #52606d }
  .on { font-size: 14px; fill: #243b53 }
</style>"""
_FILL = {
    "plain": ("#ffffff", "#9fb3c8"),
    "area": ("#f0f4f8", "#bcccdc"),
    "rank": ("#fff3c4", "#de911d"),
}
_ICON = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 96 96" role="img" aria-label="hvdchart">
<rect width="96" height="96" rx="20" fill="#243b53"/>
<circle cx="48" cy="48" r="26" fill="none" stroke="#9fb3c8" stroke-width="5"/>
<g fill="#f7c948"><circle cx="48" cy="22" r="10"/><circle cx="74" cy="48" r="10"/>
<circle cx="48" cy="74" r="10"/><circle cx="22" cy="48" r="10"/></g>
</svg>
"""


@dataclass(frozen=True)
class Box:
    """A rectangle with a title and lines of text, in the colours of its kind."""

    x: int
    y: int
    width: int
    height: int
    title: str
    lines: Sequence[str] = ()
    kind: str = "plain"

    def svg(self) -> str:
        fill, stroke = _FILL[self.kind]
        parts = [
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="8" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>',
            f'<text class="title" x="{self.x + 14}" y="{self.y + 27}">{escape(self.title)}</text>',
        ]
        for number, line in enumerate(self.lines):
            y = self.y + 50 + 20 * number
            parts.append(f'<text class="line" x="{self.x + 14}" y="{y}">{escape(line)}</text>')
        return "\n".join(parts)


def arrow(start: tuple[int, int], end: tuple[int, int], text: str = "") -> str:
    """A line with a head, and a text in the middle above it."""
    (x1, y1), (x2, y2) = start, end
    line = f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#486581" stroke-width="2" '
    middle = f'x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 - 9}" text-anchor="middle"'
    return f'{line}marker-end="url(#head)"/>\n<text class="on" {middle}>{escape(text)}</text>'


def parts() -> str:
    """The parts of a run, and what goes from one to the next."""
    workers = [
        Box(720, 84 + 132 * number, 268, 112, f"worker {number}", ("sshd; one or more ranks:",))
        for number in range(2)
    ]
    ranks = [
        Box(
            worker.x + 14 + 122 * place,
            worker.y + 62,
            114,
            40,
            f"rank {2 * number + place}",
            (),
            "rank",
        )
        for number, worker in enumerate(workers)
        for place in range(2)
    ]
    boxes = [
        Box(4, 24, 196, 100, "spec", ("nodes: sockets, cores,", "GPUs, volumes; a script")),
        Box(
            4,
            222,
            196,
            100,
            "values.yaml",
            ("threads, slots, bindings,", "resources, with reasons"),
        ),
        Box(344, 24, 660, 344, "one namespace: one Helm release", (), "area"),
        Box(
            372,
            150,
            196,
            100,
            "master (a Job)",
            ("waits for the workers,", "runs mpirun, restarts"),
        ),
        *workers,
        *ranks,
    ]
    arrows = [
        arrow((100, 124), (100, 220)),
        arrow((200, 272), (342, 272), "helm install"),
        arrow((568, 190), (718, 146), "SSH"),
        arrow((568, 212), (718, 268)),
        arrow((854, 196), (854, 214)),
    ]
    said = [
        '<text class="on" x="112" y="168">hvdchart</text>',
        '<text class="on" x="112" y="188">plans</text>',
        '<text class="line" x="988" y="352" text-anchor="end">'
        "Horovod averages gradients over all ranks</text>",
    ]
    head = (
        '<defs><marker id="head" markerWidth="9" markerHeight="9" refX="8" refY="4.5" '
        'orient="auto">'
        '<path d="M0,0 L9,4.5 L0,9 z" fill="#486581"/></marker></defs>'
    )
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1012 376" role="img" '
            'aria-label="A spec becomes values, values a release: a master that starts the ranks '
            'of all workers">',
            _STYLE,
            head,
            '<rect width="1012" height="376" rx="10" fill="#ffffff"/>',
            *(box.svg() for box in boxes),
            *arrows,
            *said,
            "</svg>\n",
        ]
    )


def terminal(file: Path) -> str:
    """The text of a file as a picture of a terminal."""
    console = Console(record=True, width=104, file=io.StringIO(), force_terminal=True)
    for line in file.read_text("utf-8").splitlines():
        text = Text(line)
        text.highlight_regex(r"^\$ .*", "bold cyan")
        text.highlight_regex(r"^done ", "green")
        text.highlight_regex(r"^  \[hvd[^\]]*\]", "dim")
        console.print(text, soft_wrap=True)
    return console.export_svg(title="make demo", theme=MONOKAI, unique_id="demo") + "\n"


def main(arguments: list[str]) -> int:
    """Writes the pictures, or compares them with --check."""
    texts = {
        FOLDER / "parts.svg": parts(),
        FOLDER / "icon.svg": _ICON,
        FOLDER / "demo.svg": terminal(FOLDER / "demo.txt"),
    }
    return write_or_compare(texts, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
