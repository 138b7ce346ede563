"""What differs between a state that all ranks have alike, and one of which each has a shard."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from .agreement import Agreement, ReadableStates, RestoreReport
from .double_buffer import DoubleBuffer
from .log import log
from .packed_state import CHECKPOINT, FIXED_SIZE, KeptValues, PackedState, StepKey
from .parts import find_difference
from .ranks import Ranks
from .worker import WorkerMemory


class Parts(NamedTuple):
    """The parts of a state by name: those that all ranks have alike, and the sharded ones."""

    alike: dict[str, Any]
    sharded: dict[str, Any]

    def find_difference(self, packed: PackedState) -> str:
        """Return why a packed shared state is not of a script with these parts; empty if it is."""
        return find_difference(packed, self.alike)


class StateKind(ABC):
    """Keeps a state in the memory of workers, and in checkpoints in a folder.

    `read_state` returns the state of this rank at a step. All ranks must call commit(), save() and
    the methods of a restore.
    """

    # Whether a restore needs the own state of each rank.
    is_sharded: bool

    def __init__(self, name: str, folder: Path | None, minutes: float, run: str) -> None:
        self._name = name
        self._folder = folder
        self._minutes = minutes
        self._run = run
        self._memory = WorkerMemory(name, run)

    @property
    def memory_folder(self) -> str:
        """The folder of the worker's memory; empty without memory."""
        return self._memory.folder

    @abstractmethod
    def find_ranks(self) -> Ranks:
        """Return the ranks to which this process belongs.

        Raises RuntimeError if they are unknown.
        """

    @abstractmethod
    def commit(self, ranks: Ranks, read_state: Callable[[], KeptValues]) -> None:
        """Keep the state in memory, and in a checkpoint if that is due."""

    @abstractmethod
    def save(self, ranks: Ranks, read_state: Callable[[], KeptValues]) -> None:
        """Write a checkpoint now. Raises OSError if it cannot be written."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until the last commit is complete, with its copies and its checkpoint.

        Raises RuntimeError if the ranks have lost each other.
        """

    @abstractmethod
    def read_shards(self, parts: Parts) -> dict[str, Any]:
        """Return this rank's shards, as they are kept in its own state; empty without shards."""

    @abstractmethod
    def find_checkpoint_path(self) -> str:
        """Return the checkpoint that replaces the shared state; empty if none does."""

    @abstractmethod
    def find_fixed_size(self, parts: Parts, shards: Mapping[str, Any]) -> str:
        """Return the number of ranks without which the state is of no use; empty for any number."""

    def make_notes(self, parts: Parts, shards: Mapping[str, Any]) -> dict[str, str]:
        """Return the notes of the shared state, which the worker reads."""
        return {
            CHECKPOINT: self.find_checkpoint_path(),
            FIXED_SIZE: self.find_fixed_size(parts, shards),
        }

    @abstractmethod
    def find_readable_states(self, ranks: Ranks, parts: Parts) -> ReadableStates:
        """Return what this rank can read in memory and in checkpoints.

        States that other scripts have packed are logged.
        """

    @abstractmethod
    def receive_own_state(
        self, ranks: Ranks, agreed: Agreement, states: ReadableStates, parts: Parts
    ) -> Mapping[str, Any] | None:
        """Return this rank's own state of the step that all continue from; None without one."""

    @abstractmethod
    def is_counted_anew(self, agreed: Agreement, *, is_restored: bool) -> bool:
        """Return whether steps are counted anew after a restore.

        `is_restored` is whether this process has restored the state before.
        """

    @abstractmethod
    def name_unused_checkpoints(self, size: int) -> list[str]:
        """Return the names of checkpoints that `size` ranks cannot use."""

    def end_restore(
        self,
        ranks: Ranks,
        reports: Sequence[RestoreReport],
        key: StepKey,
        read_state: Callable[[], KeptValues] | None,
    ) -> None:
        """Keep in memory the step that all ranks continue from.

        Without `read_state`, this rank has no state of its own of that step.
        """
        if ranks.local_rank == 0:
            self._memory.use_buffer("shared", lambda buffer: buffer.keep(key))
        self._memory.use_buffer(f"rank-{ranks.rank}", lambda buffer: buffer.keep(key))

    def _read_memory(self, ranks: Ranks, parts: Parts) -> ReadableStates:
        """Return what this rank can read in memory, from which states of other runs are removed."""
        self._memory.remove_other_runs()
        shared = {}
        for packed in self._memory.use_buffer("shared", DoubleBuffer.packed_states):
            if difference := parts.find_difference(packed):
                log(difference)
            else:
                shared[packed.key] = packed
        own = {
            packed.key: packed
            for packed in self._memory.use_buffer(f"rank-{ranks.rank}", DoubleBuffer.packed_states)
        }
        own_of_others = self._memory.find_of_others(ranks.rank) if ranks.local_rank == 0 else {}
        return ReadableStates(shared, own, own_of_others, "")
