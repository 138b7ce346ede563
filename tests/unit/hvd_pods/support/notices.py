"""The master's side of notices, for tests of workers and ranks on this machine."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hvd_pods.master.notice_server import NoticeServer
from hvd_pods.rules.events import Event, NoticeTaken
from tests.support.runs import make_run

WORKER = os.uname().nodename


class Master:
    """A master with fence number 7 that accepts notices of this worker's ranks."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.taken: queue.Queue[dict[str, Any]] = queue.Queue()
        self.on_wait: Callable[[dict[str, Any], int], None] = lambda notice, number: None
        run = make_run()
        workers = [replace(run.workers[0], name=WORKER, slots=20)]
        self.server = NoticeServer("127.0.0.1", replace(run, workers=workers), self._take)
        self.server.begin(1, 7)
        for name, value in self.variables.items():
            patch.setenv(name, value)

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment by which a rank finds this master."""
        return {"HVD_FENCE": "7", "HVD_NOTICES": self.server.address}

    def _take(self, event: Event) -> None:
        assert isinstance(event, NoticeTaken)
        notice = dict(event.notice)
        self.taken.put(notice)
        self.on_wait(notice, event.connection)

    def all(self, number: int) -> list[dict[str, Any]]:
        """Return the next notices, which must arrive within 20 s. No other notice may have arrived
        by then.
        """
        notices = [self.taken.get(timeout=20) for _ in range(number)]
        assert self.taken.empty()
        return notices
