"""The threads that a module of the pods' files starts, without those of other tests."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import ModuleType, SimpleNamespace

import pytest

from tests.fakes.faults import TIMEOUT


def record_threads(patch: pytest.MonkeyPatch, *modules: ModuleType) -> list[threading.Thread]:
    """Return a list that each thread joins that `modules` start from now on."""
    started: list[threading.Thread] = []

    class RecordedThread(threading.Thread):
        def start(self) -> None:
            super().start()
            started.append(self)

    known = SimpleNamespace(**{**vars(threading), "Thread": RecordedThread})
    for module in modules:
        patch.setattr(module, "threading", known)
    return started


def join_threads(threads: Iterable[threading.Thread]) -> None:
    """Wait until the threads have ended; fails when one does not."""
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive(), thread.name
