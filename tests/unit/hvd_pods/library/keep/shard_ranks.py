"""Ranks that are threads and that train a sharded model, on workers that are folders."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hvd_pods.library import keep
from hvd_pods.library.keep import kept_state, ranks, sharded_state
from tests.support.fakes.faults import TIMEOUT


class KilledError(RuntimeError):
    """This rank was killed."""


class Channel:
    """What the ranks of an attempt tell each other; `deaths` says after how many words one dies."""

    def __init__(self, size: int, deaths: dict[int, int]) -> None:
        self.items: list[Any] = [None] * size
        self._barrier = threading.Barrier(size)
        self._left = dict(deaths)

    def tell(self, rank: int, item: Any) -> list[Any]:
        if rank in self._left:
            self._left[rank] -= 1
            if self._left[rank] < 0:
                self._barrier.abort()
                raise KilledError
        self.items[rank] = item
        self._barrier.wait(TIMEOUT)
        gathered = copy.deepcopy(self.items)
        self._barrier.wait(TIMEOUT)
        return gathered

    def abort(self) -> None:
        self._barrier.abort()


class ThreadRanks(ranks.Ranks):
    """One of them."""

    def __init__(self, rank: int, local_rank: int, channel: Channel) -> None:
        self.rank = rank
        self.size = len(channel.items)
        self.local_rank = local_rank
        self._channel = channel

    def gather(self, item: Any) -> list[Any]:
        return self._channel.tell(self.rank, item)

    def send(self, piece: memoryview, root: int) -> None:
        piece[:] = self.gather(bytes(piece))[root]


class Inner:
    """The optimizer of what one rank has."""

    def __init__(self, shard: bytes) -> None:
        self.shard = shard
        self.param_groups: list[dict[str, Any]] = [{"params": [0], "lr": 0.1}]

    def state_dict(self) -> dict[str, Any]:
        return {"state": {0: {"shard": self.shard}}, "param_groups": self.param_groups}

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        self.shard = bytes(kept["state"][0]["shard"])
        self.param_groups = kept["param_groups"]


class ZeroRedundancyOptimizer:
    """As PyTorch's, which keep knows by its name."""

    def __init__(self, shard: bytes) -> None:
        self.optim = Inner(shard)
        self.param_groups = copy.deepcopy(self.optim.param_groups)


class Restored(NamedTuple):
    """What a rank had after restore(): `history` has for each step the attempt that has made it."""

    step: int
    weights: bytes
    shard: bytes

    @property
    def history(self) -> list[int]:
        return [*json.loads(self.weights)]


class Attempt:
    """What came of an attempt.

    restored: what ranks that have come so far had. done: the last step of which all ranks knew that
    it is kept, with its history. problems: what ended ranks.
    """

    def __init__(self) -> None:
        self.restored: dict[int, Restored] = {}
        self.done: list[int] | None = None
        self.problems: list[RuntimeError] = []


class Cluster:
    """Workers, which are folders, and what they train; `places` has the worker of each rank."""

    def __init__(self, folder: Path, places: list[int]) -> None:
        self.folder = folder
        self.places = places
        self.attempts = 0
        self.minutes = 10.0
        self.here = threading.local()

    def worker(self, number: int) -> Path:
        return self.folder / f"worker-{number}"

    def lose(self, number: int) -> Path:
        """Replace a worker; where what it had can come back from."""
        lost = self.folder / f"lost-{number}-{self.attempts}"
        shutil.rmtree(lost, ignore_errors=True)
        if self.worker(number).exists():
            self.worker(number).rename(lost)
        return lost

    def bring_back(self, number: int, lost: Path) -> None:
        """Let a worker have again what it had when it was lost."""
        shutil.rmtree(self.worker(number), ignore_errors=True)
        if lost.exists():
            lost.rename(self.worker(number))

    def tear(self, rank: int, done: int) -> None:
        """Let a rank be killed while it writes a step after this one."""
        for path in self.worker(self.places[rank]).glob(f"one/main-rank-{rank}.*"):
            with contextlib.suppress(ValueError):
                if keep.read_file(path).key.step > done:
                    with path.open("r+b") as file:
                        file.write(bytes(8))

    def train(self, steps: int, deaths: dict[int, int] | None = None, **given: Any) -> Attempt:
        """One attempt, with new processes, which make so many steps more."""
        self.attempts += 1
        attempt = Attempt()
        channel = Channel(len(self.places), deaths or {})
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HVD_FENCE", str(self.attempts))
            patch.setattr(sharded_state, "find_sharded_ranks", lambda: self.here.ranks)
            states = [self._state(rank, patch, **given) for rank in range(len(self.places))]

            def run(rank: int) -> None:
                local_rank = self.places[:rank].count(self.places[rank])
                self.here.ranks = ThreadRanks(rank, local_rank, channel)
                try:
                    self._train(rank, states[rank], steps, attempt)
                except RuntimeError as problem:
                    channel.abort()
                    attempt.problems.append(problem)
                # A process ends when its checkpoint is written.
                with contextlib.suppress(RuntimeError):
                    states[rank].wait()

            with ThreadPoolExecutor(len(states)) as pool:
                list(pool.map(run, range(len(states))))
        return attempt

    def _state(self, rank: int, patch: pytest.MonkeyPatch, **given: Any) -> Any:
        patch.setenv("HVD_KEEP", str(self.worker(self.places[rank])))
        kept_state.states.clear()
        part = ZeroRedundancyOptimizer(self.shard(rank, []))
        return keep.State(weights=b"[]", part=part, own=b"own", minutes=self.minutes, **given)

    @staticmethod
    def shard(rank: int, history: list[int]) -> bytes:
        """What a rank has of it; some have more than others."""
        return json.dumps([rank, history]).encode() + bytes(100_000 * (rank % 2))

    def _train(self, rank: int, kept: Any, steps: int, attempt: Attempt) -> None:
        step = kept.restore()
        found = Restored(step, bytes(kept.weights), kept.part.optim.shard)
        attempt.restored[rank] = found
        history = found.history
        for _ in range(steps):
            before = [*history] if step else None
            history.append(self.attempts)
            kept.weights = json.dumps(history).encode()
            kept.part.optim.shard = self.shard(rank, history)
            step += 1
            kept.commit()
            attempt.done = before or attempt.done
        kept.wait()
        attempt.done = history if step else attempt.done


@contextlib.contextmanager
def cluster(folder: Path, places: list[int]) -> Iterator[Cluster]:
    """A cluster in which the run `one` trains."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HVD_RUN_ID", "one")
        patch.delenv("OUTPUT_PATH", raising=False)
        yield Cluster(folder, places)


def whole_steps(cluster: Cluster, read: Callable[[Path], Any] = keep.read_file) -> list[int]:
    """The steps of which the workers have the shards of all ranks, as their files show."""
    shared = set()
    shards: dict[int, set[keep.StepKey]] = {rank: set() for rank in range(len(cluster.places))}
    for worker in {*cluster.places}:
        for path in cluster.worker(worker).glob("one/main-*"):
            try:
                key = read(path).key
            except ValueError:
                continue
            if "-shared." in path.name:
                shared.add(key)
            else:
                shards[int(path.stem.rpartition("-")[2])].add(key)
    return [key.step for key in sorted(shared.intersection(*shards.values()))]
