"""Two workers, which are folders, with a rank each, which is a thread."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.library import keep
from hvd_pods.library.keep import kept_state, ranks, whole_state
from tests.support.fakes.faults import TIMEOUT


class TwoRanks(ranks.Ranks):
    """One of two ranks, each alone on a worker, that are threads."""

    size = 2

    def __init__(self, rank: int, items: list[Any], barrier: threading.Barrier) -> None:
        self.rank = rank
        self._items = items
        self._barrier = barrier

    def gather(self, item: Any) -> list[Any]:
        self._items[self.rank] = item
        self._barrier.wait(TIMEOUT)
        gathered = copy.deepcopy(self._items)
        self._barrier.wait(TIMEOUT)
        return gathered

    def send(self, piece: memoryview, root: int) -> None:
        piece[:] = self.gather(bytes(piece))[root]


class TwoWorkers:
    """Two workers with a rank each; `places` are their numbers, by rank."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.places = [0, 1]
        self._here = threading.local()
        self._patch = monkeypatch
        monkeypatch.setattr(whole_state, "find_ranks", lambda: self._here.ranks)

    def state(self, rank: int, **parts: Any) -> Any:
        """The state of a new process with this rank, which acts for itself until `together`."""
        self._here.ranks = ranks.Ranks()
        self._here.ranks.rank = rank
        kept_state.states.clear()
        place = self.folder / str(self.places[rank])
        place.mkdir(exist_ok=True)
        self._patch.setenv("HVD_KEEP", str(place))
        return keep.State(**parts)

    def together(self, states: list[Any]) -> list[int]:
        """Let both restore; their steps."""
        items: list[Any] = [None, None]
        barrier = threading.Barrier(2)

        def restore(rank: int) -> int:
            self._here.ranks = TwoRanks(rank, items, barrier)
            return int(states[rank].restore())

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(restore, (0, 1)))
