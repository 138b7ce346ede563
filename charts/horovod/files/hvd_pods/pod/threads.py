"""Starts the threads that the programs of the pods leave running."""

from __future__ import annotations

import threading
from typing import Callable


def start_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """Run a function in a daemon thread: it does not keep the pod from ending."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
