"""Takes the pictures of the page for the documentation: `make pictures` writes them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hvdchart.watch.page import page
from tests.browser import PROGRAM, take_picture
from tests.unit.hvdchart.runs import JOB
from tests.unit.hvdchart.watch import sample

FOLDER = Path(__file__).parents[4] / "docs" / "pictures"
SIZE = (1120, 1330)
NAME = "resnet50"
# Bytes of a picture.
MOST = 150_000


def main() -> int:
    """Write the pictures; 1 without a browser, or when one is too large."""
    if PROGRAM is None:
        print("no program chromium is on PATH: apt-get install chromium", file=sys.stderr)
        return 1
    code = 0
    pictures = {"watch-light": sample.training_view(), "watch-dark": sample.stalled_view()}
    for name, view in pictures.items():
        target = FOLDER / f"{name}.png"
        with TemporaryDirectory() as folder:
            file = Path(folder, "page.html")
            text = page(replace(view, name=NAME))
            file.write_text(
                text.replace("hvd-worker", f"{NAME}-worker").replace(JOB, f"{NAME}-master")
            )
            is_dark = name.endswith("dark")
            take_picture(file.as_uri(), target, SIZE, Path(folder, "profile"), is_dark=is_dark)
        size = target.stat().st_size
        print(f"{target.name}: {size} bytes")
        if size > MOST:
            print(f"{target.name}: more than {MOST} bytes", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
