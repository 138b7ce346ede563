"""Writing files so that a reader, or a crash, never meets half of one."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Puts `data` at `path` in one step: it is written beside it and renamed over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
    beside.rename(path)


def write_private(path: Path, data: bytes) -> None:
    """As write_atomic, for the owner's eyes only (0600)."""
    write_atomic(path, data, 0o600)
