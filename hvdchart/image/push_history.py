"""Remembers which images were pushed from this machine, so that none is pushed twice."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hvdchart.errors import FileError
from hvdchart.files import write_atomically

# How many pushed images are remembered: a project has one for each content.
_MOST = 500


def was_pushed(reference: str) -> bool:
    """Whether an image of this content was pushed from this machine."""
    return reference in _read()


def keep_pushed(reference: str) -> None:
    """Remember that an image was pushed; a cache that cannot be written costs another push."""
    pushed = [*_read(), reference][-_MOST:]
    try:
        _file().parent.mkdir(parents=True, exist_ok=True)
        write_atomically(_file(), json.dumps(pushed))
    except (OSError, FileError):
        return


def _file() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "hvdchart" / "pushed.json"


def _read() -> list[str]:
    try:
        content = json.loads(_file().read_text())
    except (OSError, ValueError):
        return []
    return content if isinstance(content, list) else []
