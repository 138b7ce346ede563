"""The copy of each rank's shard in the memory of another worker."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from pathlib import Path
from typing import NamedTuple, Sequence

from .finishing import END_WITHIN
from .log import say
from .ranks import Ranks
from .record import BEGIN, Key
from .slots import Slots
from .worker import WorkerMemory


class Place(NamedTuple):
    """Where a rank is: what is lost together has the same node, or the same worker."""

    node: str
    worker: str


class Outcome(NamedTuple):
    """What all ranks know after a commit.

    is_kept: whether each shard of it is in the memory of two workers, or of one where there is one
    worker alone. is_due: whether the next commit is written to the checkpoint. was_written: whether
    each rank has written its part of the checkpoint before.
    """

    is_kept: bool
    is_due: bool
    was_written: bool


def find_place(folder: str) -> Place:
    """Where this rank is; `folder` has the memory of its worker."""
    node = os.uname().nodename
    with contextlib.suppress(OSError):
        # Alike in all containers of a machine.
        node = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Place(node, f"{os.uname().nodename}:{folder}")


def place_copies(places: Sequence[Place]) -> list[int | None]:
    """By rank, the rank in whose worker the copy of its shard is; None where there is one worker.

    The workers are a ring: the copies of one are in the next one that is on another node, or in the
    next one where all are on the same node.
    """
    workers: dict[str, list[int]] = {}
    for rank, place in enumerate(places):
        workers.setdefault(place.worker, []).append(rank)
    ring = [*workers.values()]
    holders: list[int | None] = [None] * len(places)
    for number, ranks in enumerate(ring):
        after = [*ring[number + 1 :], *ring[:number]]
        node = places[ranks[0]].node
        apart = [each for each in after if places[each[0]].node != node]
        for holder in (apart or after)[:1]:
            for local, rank in enumerate(ranks):
                holders[rank] = holder[local % len(holder)]
    return holders


class Copies:
    """Sends the shard of this rank to another worker, and takes those of others, beside a step."""

    def __init__(self, memory: WorkerMemory, ranks: Ranks, places: Sequence[Place]) -> None:
        self._memory = memory
        self._ranks = ranks
        self._holders = place_copies(places)
        # The ranks whose shards this rank keeps, and all whose shards are in this worker.
        self.taken = [rank for rank, holder in enumerate(self._holders) if holder == ranks.rank]
        here = places[ranks.rank].worker
        self.here = {rank for rank, place in enumerate(places) if place.worker == here}
        self.here.update(
            rank
            for rank, holder in enumerate(self._holders)
            if holder is not None and places[holder].worker == here
        )
        nodes = {place.node for place in places}
        self._is_apart = len(nodes) > 1
        self._are_copied = None not in self._holders
        self._thread: threading.Thread | None = None
        self._outcome = Outcome(is_kept=True, is_due=False, was_written=True)
        self._problem: Exception | None = None

    def begin(self, key: Key, *, is_ready: bool, was_written: bool) -> None:
        """Send the record of this rank with this key; all ranks have to call this.

        `is_ready` tells the others whether this rank can write a checkpoint after the next step,
        and `was_written` whether it has written the last one.
        """

        def exchange() -> None:
            try:
                self._outcome = self._exchange(key, is_ready=is_ready, was_written=was_written)
            except (RuntimeError, ValueError) as problem:
                self._problem = problem

        if self._thread is None:
            atexit.register(self._wait, END_WITHIN)
        self._thread = threading.Thread(target=exchange, name="keep-copies", daemon=True)
        self._thread.start()

    def end(self) -> Outcome:
        """What came of the last exchange, which this waits for.

        Raises RuntimeError where the ranks have lost each other.
        """
        self._wait()
        if self._problem is not None:
            raise RuntimeError("keep: cannot copy the shard of this rank") from self._problem
        return self._outcome

    def tell(self) -> None:
        """Say where copies are not as safe as they could be."""
        if not self._are_copied:
            say("all ranks are on one worker: a shard has no copy, and is lost with the worker")
        elif not self._is_apart:
            say("all workers are on one node: a shard and its copy are lost with the node")

    def _wait(self, seconds: float | None = None) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    def _exchange(self, key: Key, *, is_ready: bool, was_written: bool) -> Outcome:
        rank = self._ranks.rank
        # What a GPU still writes is waited for.
        shared = bool(self._memory("shared", lambda slots: slots.find(key)) or [])
        mine = self._memory(f"rank-{rank}", lambda slots: slots.find(key)) or memoryview(b"")
        has_shared = shared or self._ranks.local_rank != 0
        told = self._ranks.gather(
            (bytes(mine[:BEGIN]), len(mine) if has_shared else 0, is_ready, was_written)
        )
        is_kept = all(size for _, size, *_ in told)
        if is_kept:
            is_kept = self._copy(mine, [(header, size) for header, size, *_ in told])
        is_due = all(ready for *_, ready, _ in told)
        return Outcome(is_kept, is_due, all(written for *_, written in told))

    def _copy(self, mine: memoryview, told: Sequence[tuple[bytes, int]]) -> bool:
        """Whether all ranks have taken the records of others."""
        room: dict[int, memoryview] = {}
        has_room = True
        for source in self.taken:
            size = told[source][1]
            try:
                room[source] = self._slots(source).make_room(size)
            except OSError:
                # Its owner sends it all the same.
                has_room = False
                room[source] = memoryview(bytearray(size))
        holder = self._holders[self._ranks.rank]
        sent = {} if holder is None else {holder: mine[BEGIN:]}
        self._ranks.deliver(sent, {source: view[BEGIN:] for source, view in room.items()})
        if has_room:
            for source in self.taken:
                self._slots(source).accept(told[source][0])
        # Nobody makes the next commit before all have this one.
        return all(self._ranks.gather(has_room))

    def _slots(self, rank: int) -> Slots:
        slots: Slots = self._memory(f"rank-{rank}", lambda slots: slots)
        return slots
