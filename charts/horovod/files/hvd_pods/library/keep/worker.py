"""The memory of a worker, which outlives its ranks."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path
from typing import Any, Callable, Collection

from .double_buffer import DoubleBuffer
from .log import log
from .packed_state import KeptValues, PackedState, StepKey, read_file
from .ranks import Ranks

# In the memory volume of a worker. Each run has a folder of its own inside.
FOLDER = "/dev/shm/hvd-keep"  # noqa: S108 - for the pod's user alone


class WorkerMemory:
    """The memory of a worker for a state; absent outside of a run, and when it is full.

    Without the identity of the run, a state could be that of another training.
    """

    def __init__(self, state: str, run: str) -> None:
        self._state = state
        self._folder = Path(os.environ.get("HVD_KEEP", FOLDER), Path(run).name) if run else None
        self._buffers: dict[str, DoubleBuffer] = {}

    def use_buffer(self, name: str, use: Callable[[DoubleBuffer], Any]) -> Any:
        """Return the result of `use` for this double buffer; an empty list if there is no memory.

        Raises an OSError of `use`.
        """
        if self._folder is None:
            return []
        if name not in self._buffers:
            self._buffers[name] = DoubleBuffer(self._folder, f"{self._state}-{name}")
        return use(self._buffers[name])

    def keep(self, ranks: Ranks, state: KeptValues, *, where_missing: bool = False) -> None:
        """Keep this rank's own state of a step, and on the worker's first rank the shared state.

        With `where_missing`, memory that has this step stays as it is. Raises OSError without room.
        """

        def write(buffer: DoubleBuffer, value: dict[str, Any]) -> None:
            if not where_missing or buffer.find(state.key) is None:
                buffer.write(state.key, value)

        # First what is the rank's own, so that the shared part is never without it.
        if state.own:
            self.use_buffer(f"rank-{ranks.rank}", lambda buffer: write(buffer, state.own))
        if ranks.local_rank == 0:
            self.use_buffer("shared", lambda buffer: write(buffer, state.values))

    def remove_other_runs(self) -> None:
        """Remove the states of other runs."""
        if self._folder is not None:
            for other in {*self._folder.parent.glob("*")} - {self._folder}:
                shutil.rmtree(other, ignore_errors=True)

    @property
    def is_there(self) -> bool:
        """Whether this process keeps something in memory."""
        return self._folder is not None

    @property
    def folder(self) -> str:
        """The folder of the memory, or an empty text."""
        return str(self._folder or "")

    def remove_shards(self, ranks: Collection[int], *, except_key: StepKey | None = None) -> None:
        """Remove shards of ranks that are not `ranks`, except those with the key `except_key`."""
        for rank, path in self._find_of_ranks():
            with contextlib.suppress(OSError, ValueError):
                if rank not in ranks and (except_key is None or read_file(path).key != except_key):
                    path.unlink()

    def _find_of_ranks(self) -> list[tuple[int, Path]]:
        """Return the ranks with a state of their own in this memory, and its files."""
        if self._folder is None:
            return []
        pattern = re.compile(rf"{re.escape(self._state)}-rank-(\d{{1,7}})\.[ab]")
        matches = [(pattern.fullmatch(path.name), path) for path in self._folder.glob("*")]
        return sorted((int(match[1]), path) for match, path in matches if match)

    def find_of_others(self, rank: int) -> dict[int, dict[StepKey, PackedState]]:
        """Return, by rank, the packed states that ranks other than this one have here."""
        states: dict[int, dict[StepKey, PackedState]] = {}
        for owner, path in self._find_of_ranks():
            if owner == rank:
                continue
            with contextlib.suppress(OSError, ValueError):
                packed = read_file(path)
                states.setdefault(owner, {})[packed.key] = packed
        return states

    def give_up(self, problem: object, size: int) -> None:
        """Continue without memory, which has no room for this size; leave its content."""
        if self._folder is None:
            return
        volume = os.statvfs(next(place for place in self._folder.parents if place.exists()))
        log(
            f"cannot keep the state in memory, so that a fault costs the steps since the last "
            f"checkpoint: {problem}: two copies need {2 * size >> 20} MiB, and of "
            f"{volume.f_frsize * volume.f_blocks >> 20} MiB of shared memory "
            f"{volume.f_frsize * volume.f_bavail >> 20} MiB are free: raise `train.state` of the "
            "spec, or `shm.sizeLimit`"
        )
        self._folder = None
