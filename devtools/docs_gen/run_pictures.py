"""Draw the view of a run in a terminal, and take pictures of its page, for docs/watching.md.

`make generate` draws the view. `make pictures` takes the pictures, which need a browser.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from devtools.common.browser import run
from devtools.common.errors import DevtoolsError
from devtools.common.ui import show_error
from devtools.docs_gen.sample_run import stalled_view, training_view
from hvdchart.watch.page import page
from hvdchart.watch.terminal import Screen
from hvdchart.watch.view_model import View

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
TERMINAL_PICTURE = FOLDER / "watch-terminal.svg"
LIGHT_PICTURE = FOLDER / "watch-light.png"
DARK_PICTURE = FOLDER / "watch-dark.png"
# In pixels. The height fits the rows of all ranks.
WIDTH_PIXELS = 1120
HEIGHT_PIXELS = 1258
NOTE_HEIGHT_PIXELS = 86
# The size limit of a picture in bytes.
MAX_PICTURE_BYTES = 150_000


def draw_terminal(view: View) -> str:
    """Return the view as a terminal shows it, as SVG."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(
            file=nowhere,
            width=100,
            height=34,
            record=True,
            force_terminal=True,
            color_system="truecolor",
            no_color=False,
        )
        console.print(Screen(view))
    text = console.export_svg(title=f"hvdchart watch {view.name}", unique_id="watch")
    # Load no font from a network.
    return re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)


def generated_texts() -> Mapping[Path, str]:
    """Return the picture of the terminal."""
    return {TERMINAL_PICTURE: draw_terminal(stalled_view())}


def take_picture(view: View, target: Path, *, is_dark: bool) -> None:
    """Write a picture of the view's page as PNG, in its light or its dark colours.

    Raises DevtoolsError without a browser, and when the picture is too large.
    """
    height = HEIGHT_PIXELS + (NOTE_HEIGHT_PIXELS if view.stall else 0)
    scheme = 0 if is_dark else 1
    options = (
        f"--window-size={WIDTH_PIXELS},{height}",
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--screenshot={target}",
    )
    with TemporaryDirectory() as folder:
        file = Path(folder, "page.html")
        file.write_text(page(view))
        run(file.as_uri(), *options, profile=Path(folder, "profile"))
    written = target.stat().st_size
    print(f"{target.name}: {written} bytes")
    if written > MAX_PICTURE_BYTES:
        raise DevtoolsError(
            f"{target.name} has more than {MAX_PICTURE_BYTES} bytes", "make its view smaller"
        )


def main() -> int:
    """Take the pictures. Return 1 when one cannot be taken."""
    try:
        take_picture(training_view(), LIGHT_PICTURE, is_dark=False)
        take_picture(stalled_view(), DARK_PICTURE, is_dark=True)
    except DevtoolsError as error:
        show_error(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
