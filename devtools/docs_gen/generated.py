"""What the generators share: sections of pages between marker lines, and writing or comparing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from hvdchart.files import difference, write_atomically


def replace_section(page: Path, start: str, section: str, end: str, text: str | None = None) -> str:
    """The text of `page`, or `text`, with `section` between the marker lines `start` and `end`.

    Exits with a message when the page lacks a marker line.
    """
    written = page.read_text("utf-8") if text is None else text
    before, start_line, rest = written.partition(start)
    _, end_line, after = rest.partition(end)
    if not start_line or not end_line:
        sys.exit(f"{page}: the marker lines {start} and {end} are missing: add them")
    return f"{before}{start}\n{section}\n{end}{after}"


def write_or_compare(texts: Mapping[Path, str], arguments: list[str]) -> int:
    """Writes the texts to their files. With `--check` it writes nothing, prints how each file
    differs from its text, and returns 1 when one does.
    """
    changes = {path: difference(path, text) for path, text in texts.items()}
    differing = [path for path, change in changes.items() if change]
    for path in differing:
        if "--check" in arguments:
            sys.stderr.write(f"{changes[path]}{path}: differs from its sources: `make generate`\n")
        else:
            write_atomically(path, texts[path])
            print(f"wrote {path}")
    return 1 if differing and "--check" in arguments else 0
