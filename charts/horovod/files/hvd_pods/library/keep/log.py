"""The log of a rank.

Scripts import this package by the path of the library, from which they find no other module of the
programs: the log of the pods (pod/reporting.py) cannot be imported here.
"""

from __future__ import annotations

import sys


def log(message: str) -> None:
    """Write a line to the log of this rank."""
    print(f"[keep] {message}", file=sys.stderr, flush=True)
