"""What earlier builds leave for later ones: how long each took, and which images were pushed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hvdchart.errors import FileError
from hvdchart.files import write_atomically

# How many pushed images are remembered: a project has one for each content.
_MOST = 500


def last_duration(repository: str) -> float | None:
    """How many seconds the last build of a repository's image took; None for the first."""
    try:
        return float(_read("builds")[repository])
    except (KeyError, ValueError, TypeError):
        return None


def keep_duration(repository: str, seconds: float) -> None:
    """Remember how long a build took, for the next one's estimate."""
    _write("builds", {**_read("builds"), repository: round(seconds, 1)})


def was_pushed(reference: str) -> bool:
    """Whether an image of this content was pushed from this machine."""
    return reference in _read("pushed")


def keep_pushed(reference: str) -> None:
    """Remember that an image was pushed."""
    pushed = {**_read("pushed"), reference: None}
    _write("pushed", dict(list(pushed.items())[-_MOST:]))


def _file(name: str) -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "hvdchart" / f"{name}.json"


def _read(name: str) -> dict[str, Any]:
    try:
        content = json.loads(_file(name).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(name: str, content: dict[str, Any]) -> None:
    try:
        _file(name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(_file(name), json.dumps(content))
    except (OSError, FileError):
        # It only saves time.
        return
