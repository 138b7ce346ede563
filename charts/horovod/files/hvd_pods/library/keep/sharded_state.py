"""The keeping of a sharded state: copies in other workers, and a checkpoint of each rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from .agreement import (
    Agreement,
    ReadableStates,
    RestoreReport,
    choose_checkpoint_to_replace,
    send_own_states,
)
from .checkpoint import Checkpoint, ShardCheckpoints
from .double_buffer import DoubleBuffer
from .log import log
from .packed_content import PackedContent
from .packed_state import KeptValues, PackedState, ShardPlace, StepKey, pack
from .ranks import Ranks, find_sharded_ranks
from .shard_copies import CommitOutcome, Copies
from .shard_parts import (
    divide_shards,
    find_division,
    find_shard_difference,
    form_of_shard,
    read_shard,
)
from .state_kind import Parts, StateKind


class ShardedState(StateKind):
    """Keeps the shard of this rank: in the memory of two workers, and in checkpoints of its own.

    The methods that need a restore() before them raise RuntimeError without one.
    """

    is_sharded = True

    def __init__(self, name: str, folder: Path | None, minutes: float, run: str) -> None:
        super().__init__(name, folder, minutes, run)
        self._copies: Copies | None = None
        self._checkpoints: ShardCheckpoints | None = None
        # What came in the way of keeping a shard in memory, until all ranks know it.
        self._problem: OSError | None = None

    def find_ranks(self) -> Ranks:
        """Return the ranks in a group of their own. All ranks must call this.

        Raises RuntimeError if neither torch.distributed nor jax.distributed has begun.
        """
        return find_sharded_ranks()

    def wait(self) -> None:
        """Wait until all ranks have the last commit, and this rank has written its checkpoint.

        Raises RuntimeError if the ranks have lost each other, but not before the end of the write.
        """
        try:
            if self._copies is not None:
                self._copies.end()
        finally:
            if self._checkpoints is not None:
                self._checkpoints.wait()

    def commit(self, ranks: Ranks, read_state: Callable[[], KeptValues]) -> None:
        """Keep the shard of this rank, after all ranks have the commit before."""
        copies = self._find_copies("commit()")
        before = copies.end()
        state = read_state()
        if self._memory.is_there and not before.is_kept:
            problem = self._problem or "another rank has no room"
            size = 2 * PackedContent(state.own).size + PackedContent(state.values).size
            self._memory.give_up(problem, size)
        elif ranks.local_rank == 0:
            self._memory.remove_shards(copies.ranks_here)
        self._keep(ranks, copies, before, state)

    def save(self, ranks: Ranks, read_state: Callable[[], KeptValues]) -> None:
        """Write a checkpoint now. Raises OSError if it cannot be written."""
        self._find_copies("save()").end()
        disk = self._checkpoints
        if disk is not None:
            disk.wait()
            checkpoint = disk.take(were_written=all(ranks.gather(disk.was_written)))
            checkpoint.write(_pack(ranks, read_state()))

    def read_shards(self, parts: Parts) -> dict[str, Any]:
        """Return this rank's shards as they are kept: with their forms, the rank and the run."""
        ranks = self.find_ranks()
        shards = {name: read_shard(part) for name, part in parts.sharded.items()}
        forms = {name: form_of_shard(part, shards[name]) for name, part in parts.sharded.items()}
        place = {"rank": ranks.rank, "size": ranks.size}
        return {"shards": shards, "forms": forms, **place, "run": self._run}

    def find_checkpoint_path(self) -> str:
        """Return nothing: what ranks have alike is no state without the shards of all ranks."""
        return ""

    def find_fixed_size(self, parts: Parts, shards: Mapping[str, Any]) -> str:
        """Return the number of ranks, unless any number of ranks can divide the shards anew."""
        is_divisible = all(whole for whole, _ in shards["forms"].values())
        return "" if is_divisible else str(shards["size"])

    def receive_own_state(
        self, ranks: Ranks, agreed: Agreement, states: ReadableStates, parts: Parts
    ) -> Mapping[str, Any] | None:
        """Return this rank's shards of the step, divided anew if they are of other ranks."""
        if agreed.shard_holders:
            return divide_shards(
                ranks, agreed.key, agreed.shard_holders, states.of_other_sizes, parts.sharded
            )
        packed = send_own_states(ranks, agreed, states)
        return None if packed is None else packed.value

    def is_counted_anew(self, agreed: Agreement, *, is_restored: bool) -> bool:
        """Return whether a process has restored once more, or shards are divided."""
        return is_restored or bool(agreed.shard_holders)

    def end_restore(
        self,
        ranks: Ranks,
        reports: Sequence[RestoreReport],
        key: StepKey,
        read_state: Callable[[], KeptValues] | None,
    ) -> None:
        """Copy shards until each one is in two workers again, after a worker was lost."""
        super().end_restore(ranks, reports, key, read_state)
        copies = Copies(self._memory, ranks, [report.domain for report in reports])
        self._copies = copies
        if self._checkpoints is not None:
            self._checkpoints.begin_with(
                choose_checkpoint_to_replace([report.checkpoints for report in reports])
            )
        if not self._memory.is_there:
            return
        if ranks.rank == 0:
            copies.warn()

        def keep(buffer: DoubleBuffer) -> None:
            buffer.packed_states()
            buffer.keep(key)

        for rank in copies.ranks_kept:
            self._memory.use_buffer(f"rank-{rank}", keep)
        if read_state is not None:
            if ranks.local_rank == 0:
                self._memory.remove_shards(copies.ranks_here, except_key=key)
            self._keep(ranks, copies, copies.end(), read_state(), where_missing=True)

    def find_readable_states(self, ranks: Ranks, parts: Parts) -> ReadableStates:
        """Return what this rank can read in memory and in its checkpoints."""
        self.wait()
        states = self._read_memory(ranks, parts)
        forms = {
            name: form_of_shard(part, read_shard(part)) for name, part in parts.sharded.items()
        }
        # What is wrong with a shard on another worker, that worker has to know.
        forms_of_ranks = ranks.gather(forms)

        def find_wrong_shard(packed: PackedState, rank: int = ranks.rank) -> str:
            return find_shard_difference(packed, rank, ranks.size, forms_of_ranks[rank])

        other_sizes = self._read_other_sizes(ranks.size, forms_of_ranks[0], ranks.rank)
        in_memory = [
            packed
            for packed_states in states.own_of_others.values()
            for packed in packed_states.values()
        ]
        own, of_other_sizes = _split_by_size(
            states.own, [*in_memory, *other_sizes], ranks.size, forms
        )
        own = _select_usable(own, find_wrong_shard)
        checkpoints = self._read_checkpoints(ranks, find_wrong_shard)
        on_disk = [packed for packed, _ in checkpoints]
        shared = states.shared
        for packed in filter(None, on_disk):
            own.setdefault(packed.key, packed)
            if ranks.rank == 0:
                shared.setdefault(packed.key, packed)
        for packed in other_sizes:
            if "parts" in packed.value and not parts.find_difference(packed):
                shared.setdefault(packed.key, packed)
        return ReadableStates(
            shared,
            own,
            _take_shards_of_others(states.own_of_others, ranks.size, find_wrong_shard),
            next((problem for _, problem in checkpoints if problem), ""),
            tuple(packed.key if packed else None for packed in on_disk),
            of_other_sizes,
        )

    def _read_checkpoints(
        self, ranks: Ranks, find_difference: Callable[[PackedState], str]
    ) -> list[tuple[PackedState | None, str]]:
        """Return what the two checkpoints of this rank's shard have, and each one's problem.

        Without a folder, the list is empty.
        """
        if self._folder is None:
            return []
        if self._checkpoints is None:
            self._checkpoints = ShardCheckpoints(
                self._folder, self._name, ranks.rank, ranks.size, self._minutes
            )
        return [
            checkpoint.read(self._run, find_difference) for checkpoint in self._checkpoints.both
        ]

    def name_unused_checkpoints(self, size: int) -> list[str]:
        """Return the names of rank 0's checkpoints of other numbers of ranks than `size`."""
        return sorted(path.name for path in self._find_other_sizes(size, "0"))

    def _find_other_sizes(self, size: int, rank: str) -> list[Path]:
        if self._folder is None:
            return []
        paths = self._folder.glob(f"keep-{self._name}-rank-{rank}-of-*.state")
        return [path for path in paths if f"-of-{size}." not in path.name]

    def _read_other_sizes(
        self, size: int, forms: Mapping[str, list[str]], rank: int
    ) -> list[PackedState]:
        """Return checkpoints of shards that can be divided, without reading their arrays.

        They are of any number of ranks but `size`. Only rank 0 reads them.
        """
        if rank != 0:
            return []

        def find_difference(packed: PackedState) -> str:
            return "" if find_division(packed, forms) else "other parts"

        checkpoints = [
            Checkpoint(path, self._minutes).read(self._run, find_difference, is_checked=False)[0]
            for path in self._find_other_sizes(size, "*")
        ]
        return [packed for packed in checkpoints if packed is not None]

    def _find_copies(self, call: str) -> Copies:
        if self._copies is None:
            raise RuntimeError(f"keep: the state is sharded: call restore() before {call}")
        return self._copies

    def _keep(
        self,
        ranks: Ranks,
        copies: Copies,
        before: CommitOutcome,
        state: KeptValues,
        *,
        where_missing: bool = False,
    ) -> None:
        """Keep the shard of this rank, and begin to copy it to another worker.

        With `where_missing`, memory that has this step stays as it is: until all shards are in two
        workers, the step before may be the only one that another loss would leave complete.
        """
        try:
            self._memory.keep(ranks, state, where_missing=where_missing)
        except OSError as problem:
            self._problem = problem
        disk = self._checkpoints
        if disk and before.is_due:
            checkpoint = disk.take(were_written=before.was_written)
            checkpoint.write_beside(_pack(ranks, state))
        copies.begin(
            state.key,
            is_ready=disk is not None and disk.is_ready(ranks.rank),
            was_written=disk is None or disk.was_written,
        )


def _select_usable(
    packed_states: Mapping[StepKey, PackedState], find_difference: Callable[[PackedState], str]
) -> dict[StepKey, PackedState]:
    """Return the shards of this rank that its script can use; log what is wrong with others."""
    usable = {}
    for key, packed in packed_states.items():
        if difference := find_difference(packed):
            log(difference)
        else:
            usable[key] = packed
    return usable


def _take_shards_of_others(
    states: Mapping[int, Mapping[StepKey, PackedState]],
    size: int,
    find_difference: Callable[[PackedState, int], str],
) -> dict[int, dict[StepKey, PackedState]]:
    """Return, by rank, the shards of `size` other ranks that their scripts can use."""
    return {
        rank: {
            key: packed
            for key, packed in packed_states.items()
            if not find_difference(packed, rank)
        }
        for rank, packed_states in states.items()
        if rank < size
    }


def _split_by_size(
    own: Mapping[StepKey, PackedState],
    elsewhere: Sequence[PackedState],
    size: int,
    forms: Mapping[str, Sequence[str]],
) -> tuple[dict[StepKey, PackedState], dict[ShardPlace, dict[StepKey, PackedState]]]:
    """Return the packed states of `own` that `size` ranks have made, and all shards of other sizes.

    The latter are in `own` or `elsewhere`. They are by their places.
    """
    same = {}
    sizes: dict[ShardPlace, dict[StepKey, PackedState]] = {}
    for packed in [*own.values(), *elsewhere]:
        place = find_division(packed, forms)
        if place is not None and place.size != size:
            sizes.setdefault(place, {}).setdefault(packed.key, packed)
        elif packed is own.get(packed.key):
            same[packed.key] = packed
    return same, sizes


def _pack(ranks: Ranks, state: KeptValues) -> bytearray:
    """Pack what a rank writes to its checkpoint; rank 0 adds the shared state."""
    return pack(state.key, {**state.own, **state.values} if ranks.rank == 0 else state.own)
