"""The keeping of a state that all ranks have alike: one copy in each worker, one checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Mapping

from .agreement import Agreement, ReadableStates, send_own_states
from .checkpoint import Checkpoint
from .jax_arrays import find_jax, names_axis
from .packed_content import PackedContent
from .packed_state import KeptValues, pack
from .ranks import JaxRanks, Ranks, find_ranks
from .shard_parts import find_leaves
from .state_kind import Parts, StateKind


class WholeState(StateKind):
    """Keeps a state that all ranks have alike.

    The first rank of each worker keeps it in memory, and rank 0 writes the checkpoint.
    """

    is_sharded = False

    def __init__(self, name: str, folder: Path | None, minutes: float, run: str) -> None:
        super().__init__(name, folder, minutes, run)
        self._checkpoint: Checkpoint | None = None
        if folder:
            self._checkpoint = Checkpoint((folder / f"keep-{name}.state").absolute(), minutes)

    def find_ranks(self) -> Ranks:
        """Return the ranks of any framework; without any, this process is alone."""
        return find_ranks()

    def commit(self, ranks: Ranks, read_state: Callable[[], KeptValues]) -> None:
        """Keep the state in memory, and on rank 0 periodically in the checkpoint."""
        state = read_state()
        try:
            self._memory.keep(ranks, state)
        except OSError as problem:
            self._memory.give_up(problem, PackedContent(state.values).size)
        if ranks.rank == 0 and self._checkpoint and self._checkpoint.is_due():
            self._checkpoint.write_beside(pack(state.key, state.values))

    def save(self, ranks: Ranks, read_state: Callable[[], KeptValues]) -> None:
        """Write the checkpoint on rank 0 now. Raises OSError if it cannot be written."""
        if ranks.rank == 0 and self._checkpoint:
            state = read_state()
            self._checkpoint.write(pack(state.key, state.values))

    def wait(self) -> None:
        """Wait until the checkpoint is written."""
        if self._checkpoint is not None:
            self._checkpoint.wait()

    def read_shards(self, parts: Parts) -> dict[str, Any]:
        """Return nothing: no part is sharded."""
        return {}

    def find_checkpoint_path(self) -> str:
        """Return the path of the checkpoint, which has the whole state; empty without one."""
        return str(self._checkpoint.path) if self._checkpoint else ""

    def find_fixed_size(self, parts: Parts, shards: Mapping[str, Any]) -> str:
        """Return "1" if this process is the only one of JAX, and divides arrays over its devices.

        With more processes, each would have a part of these arrays, and the state would be of no
        use.
        """
        if find_jax() is None:
            return ""
        ranks = find_ranks()
        is_alone = isinstance(ranks, JaxRanks) and ranks.size == 1
        is_divided = is_alone and any(map(names_axis, find_leaves([*parts.alike.values()])))
        return "1" if is_divided else ""

    def find_readable_states(self, ranks: Ranks, parts: Parts) -> ReadableStates:
        """Return what this rank can read in memory and, on rank 0, in the checkpoint."""
        states = self._read_memory(ranks, parts)
        problem = ""
        if ranks.rank == 0 and self._checkpoint:
            checkpoint, problem = self._checkpoint.read(self._run, parts.find_difference)
            if checkpoint is not None:
                states.shared.setdefault(checkpoint.key, checkpoint)
        return states._replace(problem=problem)

    def receive_own_state(
        self, ranks: Ranks, agreed: Agreement, states: ReadableStates, parts: Parts
    ) -> Mapping[str, Any] | None:
        """Return this rank's own state of the step, from another worker if it is there."""
        packed = send_own_states(ranks, agreed, states)
        return None if packed is None else packed.value

    def is_counted_anew(self, agreed: Agreement, *, is_restored: bool) -> bool:
        """Return False: what is committed once more is the same state."""
        return False

    def name_unused_checkpoints(self, size: int) -> list[str]:
        """Return nothing: any number of ranks can use the checkpoint."""
        return []
