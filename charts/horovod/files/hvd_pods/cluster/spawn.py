"""Starts the threads of the master, but for the one that serves its metrics (common/metrics.py)."""

from __future__ import annotations

import threading
from typing import Callable


def spawn(name: str, work: Callable[[], None]) -> threading.Thread:
    """Run a function in a thread, which does not keep the pod from ending."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
