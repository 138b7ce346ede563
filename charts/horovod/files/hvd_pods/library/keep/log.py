"""The log of a rank."""

from __future__ import annotations

import sys


def log(message: str) -> None:
    """Write a line to the log of this rank."""
    print(f"[keep] {message}", file=sys.stderr, flush=True)
