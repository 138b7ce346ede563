"""The keeping of a sharded state: copies in other workers, and a checkpoint of each rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from .agreement import ReadableStates, RestoreReport, choose_checkpoint_to_replace
from .checkpoint import Checkpoint, ShardCheckpoints
from .double_buffer import DoubleBuffer
from .log import log
from .packed_content import PackedContent
from .packed_state import KeptValues, PackedState, ShardPlace, StepKey, pack
from .ranks import Ranks
from .shard_copies import CommitOutcome, Copies
from .shard_parts import find_division, find_shard_difference, form_of_shard, read_shard
from .worker import WorkerMemory


class ShardedState:
    """Keeps the shard of this rank: in the memory of two workers, and in checkpoints of its own.

    All ranks must call its methods. `read_state` returns the state of this rank at a step. The
    methods that need a restore() before them raise RuntimeError without one.
    """

    def __init__(
        self, name: str, folder: Path | None, minutes: float, run: str, memory: WorkerMemory
    ) -> None:
        self._name = name
        self._folder = folder
        self._minutes = minutes
        self._run = run
        self._memory = memory
        self._copies: Copies | None = None
        self._checkpoints: ShardCheckpoints | None = None
        # What came in the way of keeping a shard in memory, until all ranks know it.
        self._problem: OSError | None = None

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

    def copy_again(
        self,
        ranks: Ranks,
        reports: Sequence[RestoreReport],
        key: StepKey,
        read_state: Callable[[], KeptValues] | None,
    ) -> None:
        """Copy shards until each one is in two workers again, after a worker was lost.

        `key` is the step that all ranks continue from. Without `read_state`, this rank has nothing
        of it.
        """
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

    def look(
        self,
        ranks: Ranks,
        states: ReadableStates,
        forms: Mapping[str, list[str]],
        find_difference: Callable[[PackedState], str],
    ) -> ReadableStates:
        """Return the shards of this script that were found in memory and in checkpoints.

        `forms` are those of this rank's parts. `find_difference` returns why a shared state is not
        this script's.
        """
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
            if "parts" in packed.value and not find_difference(packed):
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

    def name_other_sizes(self, size: int) -> list[str]:
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


def read_shards(ranks: Ranks, parts: Mapping[str, Any], run: str) -> dict[str, Any]:
    """Return this rank's shards as they are kept: with their forms, the rank and the run."""
    shards = {name: read_shard(part) for name, part in parts.items()}
    forms = {name: form_of_shard(part, shards[name]) for name, part in parts.items()}
    place = {"rank": ranks.rank, "size": ranks.size}
    return {"shards": shards, "forms": forms, **place, "run": run}


def find_forms(parts: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the forms of this rank's shards."""
    return {name: form_of_shard(part, read_shard(part)) for name, part in parts.items()}


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
