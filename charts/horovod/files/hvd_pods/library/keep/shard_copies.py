"""The copy of each rank's shard in the memory of another worker."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from pathlib import Path
from typing import NamedTuple, Sequence

from .completion import EXIT_TIMEOUT_SECONDS
from .double_buffer import DoubleBuffer
from .log import log
from .packed_content import HEADER_SIZE
from .packed_state import StepKey
from .ranks import Ranks
from .worker import WorkerMemory

# Those that send shards.
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


@atexit.register
def _wait_at_the_end() -> None:
    """Wait for copies that have begun, unless they wait for a lost rank."""
    end = time.monotonic() + EXIT_TIMEOUT_SECONDS
    for thread in [*_threads]:
        thread.join(max(0.0, end - time.monotonic()))


class FailureDomain(NamedTuple):
    """The node and the worker of a rank: ranks that have the same one are lost together."""

    node: str
    worker: str


class CommitOutcome(NamedTuple):
    """The outcome of a commit, which all ranks know.

    is_kept: whether each shard of it is in the memory of two workers, or of the only worker.
    is_due: whether the next commit is written to the checkpoint. was_written: whether each rank has
    written its part of the checkpoint before.
    """

    is_kept: bool
    is_due: bool
    was_written: bool


class CommitReport(NamedTuple):
    """The report of a rank to the others after a commit.

    header, size: of its packed state; the size is 0 if the rank could not keep it. lacks: the ranks
    whose packed states this rank must take.
    """

    header: bytes
    size: int
    lacks: set[int]
    is_ready: bool
    was_written: bool


def find_failure_domain(folder: str) -> FailureDomain:
    """Return the failure domain of this rank; `folder` has the memory of its worker."""
    node = os.uname().nodename
    with contextlib.suppress(OSError):
        # Alike in all containers of a machine.
        node = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return FailureDomain(node, f"{os.uname().nodename}:{folder}")


def place_copies(domains: Sequence[FailureDomain]) -> list[int | None]:
    """Return, by rank, the rank whose worker has the copy of its shard; None with one worker.

    The workers form a ring: the copies of a worker are in the next worker on another node, or in
    the next worker if all are on the same node.
    """
    workers: dict[str, list[int]] = {}
    for rank, domain in enumerate(domains):
        workers.setdefault(domain.worker, []).append(rank)
    ring = [*workers.values()]
    holders: list[int | None] = [None] * len(domains)
    for number, ranks in enumerate(ring):
        after = [*ring[number + 1 :], *ring[:number]]
        node = domains[ranks[0]].node
        apart = [worker_ranks for worker_ranks in after if domains[worker_ranks[0]].node != node]
        for holder in (apart or after)[:1]:
            for local, rank in enumerate(ranks):
                holders[rank] = holder[local % len(holder)]
    return holders


class Copies:
    """Sends this rank's shard to another worker, and receives others' shards, beside a step."""

    def __init__(
        self, memory: WorkerMemory, ranks: Ranks, domains: Sequence[FailureDomain]
    ) -> None:
        self._memory = memory
        self._ranks = ranks
        self._holders = place_copies(domains)
        # The ranks whose shards this rank keeps, and all whose shards are in this worker.
        self.ranks_kept = [
            rank for rank, holder in enumerate(self._holders) if holder == ranks.rank
        ]
        worker = domains[ranks.rank].worker
        self.ranks_here = {rank for rank, domain in enumerate(domains) if domain.worker == worker}
        self.ranks_here.update(
            rank
            for rank, holder in enumerate(self._holders)
            if holder is not None and domains[holder].worker == worker
        )
        nodes = {domain.node for domain in domains}
        self._is_apart = len(nodes) > 1
        self._are_copied = None not in self._holders
        self._thread: threading.Thread | None = None
        self._outcome = CommitOutcome(is_kept=True, is_due=False, was_written=True)
        self._problem: Exception | None = None

    def begin(self, key: StepKey, *, is_ready: bool, was_written: bool) -> None:
        """Send the packed state of this rank with this key; all ranks must call this.

        `is_ready` is whether this rank can write a checkpoint after the next step, and
        `was_written` whether it has written the last one. The other ranks receive both.
        """

        def exchange() -> None:
            try:
                self._outcome = self._exchange(key, is_ready=is_ready, was_written=was_written)
            except (RuntimeError, ValueError) as problem:
                self._problem = problem

        if not self._ranks.is_beside:
            exchange()
            return
        self._thread = threading.Thread(target=exchange, name="keep-copies", daemon=True)
        _threads.add(self._thread)
        self._thread.start()

    def end(self) -> CommitOutcome:
        """Wait for the last exchange, and return its outcome.

        Raises RuntimeError if the ranks have lost each other.
        """
        if self._thread is not None:
            self._thread.join()
        if self._problem is not None:
            raise RuntimeError("keep: cannot copy the shard of this rank") from self._problem
        return self._outcome

    def warn(self) -> None:
        """Log why copies are less safe than they could be, if they are."""
        if not self._are_copied:
            log("all ranks are on one worker: a shard has no copy, and is lost with the worker")
        elif not self._is_apart:
            log("all workers are on one node: a shard and its copy are lost with the node")

    def _exchange(self, key: StepKey, *, is_ready: bool, was_written: bool) -> CommitOutcome:
        rank = self._ranks.rank
        # What a GPU still writes is waited for.
        shared = bool(self._memory.use_buffer("shared", lambda buffer: buffer.find(key)) or [])
        states = self._memory.use_buffer(f"rank-{rank}", lambda buffer: buffer.find(key))
        packed = states or memoryview(b"")
        has_shared = shared or self._ranks.local_rank != 0
        lacks = {rank for rank in self.ranks_kept if not self._has_copy(rank, key)}
        size = len(packed) if has_shared else 0
        reports = self._ranks.gather(
            CommitReport(bytes(packed[:HEADER_SIZE]), size, lacks, is_ready, was_written)
        )
        is_kept = all(report.size for report in reports)
        if is_kept:
            is_kept = self._copy(key, packed, reports)
        return CommitOutcome(
            is_kept,
            is_due=all(report.is_ready for report in reports),
            was_written=all(report.was_written for report in reports),
        )

    def _copy(self, key: StepKey, packed: memoryview, reports: Sequence[CommitReport]) -> bool:
        """Exchange the packed states that ranks lack; return whether all ranks have theirs."""
        room: dict[int, memoryview] = {}
        has_room = True
        for source in reports[self._ranks.rank].lacks:
            size = reports[source].size
            try:
                room[source] = self._buffer(source).make_room(size)
            except OSError:
                # Its owner sends it all the same.
                has_room = False
                room[source] = memoryview(bytearray(size))
        holder = self._holders[self._ranks.rank]
        is_lacked = holder is not None and self._ranks.rank in reports[holder].lacks
        sent = {holder: packed[HEADER_SIZE:]} if holder is not None and is_lacked else {}
        self._ranks.deliver(sent, {source: view[HEADER_SIZE:] for source, view in room.items()})
        if has_room:
            for source in room:
                self._buffer(source).accept(key, reports[source].header)
        # Nobody makes the next commit before all have this one.
        return all(self._ranks.gather(has_room))

    def _has_copy(self, rank: int, key: StepKey) -> bool:
        states: list[memoryview] | memoryview | None = self._memory.use_buffer(
            f"rank-{rank}", lambda buffer: buffer.find(key)
        )
        return bool(states)

    def _buffer(self, rank: int) -> DoubleBuffer:
        buffer: DoubleBuffer = self._memory.use_buffer(f"rank-{rank}", lambda buffer: buffer)
        return buffer
