"""The state of a training between two steps."""

from __future__ import annotations

import copy
import os
import re
import weakref
from pathlib import Path
from typing import Any, Iterable, Mapping

from .agreement import (
    Agreement,
    ReadableStates,
    RestoreReport,
    agree_on_readable_step,
    send_shared_state,
)
from .cached_state_dict import Reader, find_reader
from .completion import completion_thread
from .log import log
from .packed_content import PackedContent
from .packed_state import KeptValues, PackedState, StepKey, find_launch
from .parts import build_optimizer, check_part, is_callback, read_part, write_part
from .ranks import Ranks
from .restore_log import log_restored
from .shard_copies import find_failure_domain
from .shard_parts import find_sharded, write_shard
from .sharded_state import ShardedState
from .state_kind import Parts, StateKind
from .whole_state import WholeState


class State:
    """The state of a training between two steps.

    `parts` are models, optimizers, variables, arrays, or numbers and texts in lists and dicts.
    Those that are not changed in place are attributes: `state.losses = [...]`. `own` is the own
    state of each rank, such as its generator of random numbers: a new rank keeps its initial value.
    `step` is the number of commits, unless commit() gets another one.

    Each rank keeps its shard of sharded parts, and sends a copy of it to another worker during the
    next step. Each rank must then call commit() and save().

    Every `minutes`, rank 0 writes a checkpoint to the folder `output`. The default is OUTPUT_PATH,
    without which there are no checkpoints. Outside of a run of the chart, which HVD_RUN_ID names,
    nothing is kept in memory.

    Raises ValueError for a name that another State of the script has or that cannot be the name of
    a file, for a part with the name of a method or an attribute of the State, and for a part that
    has no variables yet, or whose shards cannot be kept.
    """

    def __init__(
        self,
        name: str = "main",
        own: Any = None,
        output: str | os.PathLike[str] | None = None,
        minutes: float = 10.0,
        **parts: Any,
    ) -> None:
        _check_state_name(name)
        self.name = name
        self.step = 0
        self.own = own
        self.is_restored = False
        self._check_part_names(parts)
        self._part_names = list(parts)
        self.__dict__.update(parts)
        for part_name, part in parts.items():
            check_part(part_name, part)
            build_optimizer(part_name, part, parts.values())
        self._sharded_names = [part_name for part_name, part in parts.items() if find_sharded(part)]
        # What reads models and optimizers of PyTorch again.
        self._readers: dict[str, Reader] = {}
        # What callbacks of Keras have learned, which the beginning of a fit() resets.
        self._learned: dict[str, Any] = {}
        self._steps_of_epoch = 0
        self._series = 0
        # The launch that has made the step.
        self._launch = find_launch()
        self._run = os.environ.get("HVD_RUN_ID", "")
        output = output or os.environ.get("OUTPUT_PATH")
        make_kind = ShardedState if self._sharded_names else WholeState
        self._kind: StateKind = make_kind(
            name, Path(output) if output else None, minutes, self._run
        )
        states[name] = self

    def _check_part_names(self, names: Iterable[str]) -> None:
        """Raise ValueError for the name of a method or an attribute of the State."""
        for name in names:
            if name.startswith("_") or hasattr(self, name):
                raise ValueError(
                    f"keep: {name!r} cannot be the name of a part: the State has a method or an "
                    "attribute of this name"
                )

    def commit(self, step: int | None = None) -> None:
        """Keep the state after a step: in memory, and periodically in a checkpoint.

        `step` is the number of the step, by default one more than the last one. Each rank must call
        this. If memory is full, the log says so and only checkpoints are written from then on.
        Raises TypeError for a value that cannot be kept, and RuntimeError if the ranks are unknown.
        """
        step = self.step + 1 if step is None else int(step)
        launch = find_launch()
        # What is committed once more is not what other ranks may have of the same step.
        is_anew = step < self.step or StepKey(self._series, step, launch) == self._key
        self._series += bool(is_anew)
        self.step = step
        self._launch = launch
        self._kind.commit(self._kind.find_ranks(), self._read)

    def wait(self) -> None:
        """Wait until the last commit is complete, with its copies and its checkpoint.

        Without this, the end of the process waits. Raises RuntimeError if the ranks have lost each
        other.
        """
        completion_thread.wait()
        self._kind.wait()

    def save(self) -> None:
        """Write a checkpoint on rank 0 now, as at the end of a training.

        Of a sharded state, each rank writes its shard, and must call this. Without a folder for
        checkpoints, nothing is written. Raises OSError if the checkpoint cannot be written, and
        RuntimeError if the ranks are unknown.
        """
        completion_thread.wait()
        self._kind.save(self._kind.find_ranks(), self._read)

    def restore(self) -> int:
        """Restore the newest state on all ranks, and return its step; each rank must call this.

        If there is none, all ranks begin with the state of rank 0. Raises ValueError for a
        checkpoint of another model, and if no checkpoint could be written, unless memory has a
        newer state. Raises TypeError for a value that cannot be kept, and RuntimeError if the ranks
        are unknown.
        """
        ranks = self._kind.find_ranks()
        # Parts are looked up each time: what is restored may replace them, and must free memory.
        states = self._kind.find_readable_states(ranks, self._parts)
        if states.problem:
            log(states.problem)
        reports, agreed = agree_on_readable_step(ranks, states, lambda: self._report(ranks, states))
        key = agreed.key
        if key.series < 0:
            # Each rank refuses what cannot be kept before it trains.
            state = self._read()
            PackedContent([state.values, state.own])
        packed = send_shared_state(ranks, agreed, states.shared, lambda: self._read().values)
        own_state = self._kind.receive_own_state(ranks, agreed, states, self._parts)
        if packed is not None:
            self._apply(packed)
        if own_state is not None:
            self._apply_own(own_state)
        if ranks.rank == agreed.root:
            unused_checkpoints = self._kind.name_unused_checkpoints(ranks.size)
            log_restored(
                agreed,
                packed,
                is_restored=self.is_restored,
                unused_checkpoints=unused_checkpoints,
            )
        self._continue_from(agreed)
        self._kind.end_restore(ranks, reports, key, None if own_state is None else self._read)
        return self.step

    def _continue_from(self, agreed: Agreement) -> None:
        """Count steps from a restored one."""
        key = agreed.key
        self.step = key.step
        is_anew = self._kind.is_counted_anew(agreed, is_restored=self.is_restored)
        self._series = max(key.series, 0) + int(is_anew)
        is_of_this_launch = key.series < 0 or bool(agreed.shard_holders)
        self._launch = find_launch() if is_of_this_launch else key.launch
        self.is_restored = True

    def _report(self, ranks: Ranks, states: ReadableStates) -> RestoreReport:
        """Return what this rank has found, for the other ranks."""
        process = self._key if self.is_restored else StepKey(-1, self.step)
        return RestoreReport(
            find_failure_domain(self._kind.memory_folder),
            [*states.shared],
            [*states.own],
            {rank: [*packed_states] for rank, packed_states in states.own_of_others.items()},
            has_own=self._has_own(),
            is_sharded=self._kind.is_sharded,
            process=process if ranks.rank == 0 else None,
            problem=states.problem,
            checkpoints=states.checkpoints,
            of_other_sizes={
                place: [*packed_states] for place, packed_states in states.of_other_sizes.items()
            },
        )

    def epochs(self, steps: int) -> int:
        """Return the number of finished epochs, of `steps` steps each.

        If an epoch had other steps before, as with another number of ranks, one that was begun is
        made again.
        """
        before = self._steps_of_epoch or steps
        self._steps_of_epoch = steps
        if before != steps:
            self.step = self.step // before * steps
            self._series = self._series + 1
        return self.step // steps

    @property
    def _key(self) -> StepKey:
        return StepKey(self._series, self.step, self._launch)

    def _read(self) -> KeptValues:
        """Return the current state of this rank, as it is kept."""
        parts = self._parts
        seeds: list[Any] = []
        alike = {name: self._read_part(name, part, seeds) for name, part in parts.alike.items()}
        own: dict[str, Any] = {"own": read_part(self.own, []), "seeds": seeds}
        shards = self._kind.read_shards(parts)
        own.update(shards)
        values = {
            "parts": alike,
            "steps of epoch": self._steps_of_epoch,
            "run": self._run,
            **self._kind.make_notes(parts, shards),
        }
        has_own = shards or seeds or self.own is not None
        return KeptValues(self._key, values, own if has_own else {})

    def _has_own(self) -> bool:
        """Return whether this script has a state of its own on each rank."""
        return bool(self._kind.is_sharded or self.own is not None or self._find_seeds())

    def _find_seeds(self) -> list[Any]:
        """Return the variables with random numbers, without reading models of PyTorch."""
        seeds: list[Any] = []
        for part in self._parts.alike.values():
            if not hasattr(part, "state_dict"):
                read_part(part, seeds)
        return seeds

    def _read_part(self, name: str, part: Any, seeds: list[Any]) -> Any:
        reader = self._readers.get(name)
        if reader is None or reader.part is not part:
            reader = find_reader(part)
            if reader is None:
                return read_part(part, seeds)
            self._readers[name] = reader
        return reader.read()

    @property
    def _parts(self) -> Parts:
        """The parts as they are now."""
        alike = [name for name in self._part_names if name not in self._sharded_names]
        return Parts(
            {name: getattr(self, name) for name in alike},
            {name: getattr(self, name) for name in self._sharded_names},
        )

    def _apply(self, packed: PackedState) -> None:
        """Restore all parts from a packed state."""
        state = packed.value
        self._steps_of_epoch = state["steps of epoch"]
        for name, tree in state["parts"].items():
            part = getattr(self, name)
            setattr(self, name, write_part(part, tree))
            if is_callback(part):
                self._learned[name] = copy.deepcopy(tree)

    def begin_fit(self) -> None:
        """Restore the state for a fit() of Keras, unless it was restored.

        Raises ValueError if another fit() has used the state, and as restore() does.
        """
        if self.name in fitted:
            raise ValueError(
                f"keep: a fit() has used the state {self.name!r}: give another one a "
                "state of its own, as in keep.Callback(keep.State(name='second', ...))"
            )
        if not self.is_restored:
            self.restore()

    def end_fit(self, step: int) -> None:
        """Write a checkpoint at the end of a fit() that has come to this step."""
        self.step = max(self.step, step)
        self.save()
        fitted.add(self.name)

    def restore_callbacks(self) -> None:
        """Restore what callbacks of Keras had learned, after fit() has reset them."""
        for name, state in self._learned.items():
            write_part(getattr(self, name), state)
        self._learned.clear()

    def _apply_own(self, state: Mapping[str, Any]) -> None:
        """Restore this rank's own state; a new rank has none."""
        if "own" in state:
            self.own = write_part(self.own, state["own"])
            for variable, number in zip(self._find_seeds(), state["seeds"]):
                variable.assign(number)
        for name in self._sharded_names:
            # One after the other, so that memory has only one of them twice.
            setattr(self, name, write_shard(getattr(self, name), state["shards"][name]))


def _check_state_name(name: str) -> None:
    """Raise ValueError for a name that no file may have, or that another State has."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name):
        raise ValueError(f"keep: {name!r} cannot be the name of a State: use letters and digits")
    if name in states:
        raise ValueError(
            f"keep: this script has a State {name!r} already: give each one a name of its own, "
            "as in State(name='critic', ...)"
        )


# The states of this process, by name.
states: weakref.WeakValueDictionary[str, State] = weakref.WeakValueDictionary()
# The names of those with which a fit() has come to its end.
fitted: set[str] = set()


def last_step() -> int | None:
    """Return the step that the only State of this process has committed or restored last.

    Return None before that, and with several states, of which each has steps of its own.
    """
    every = [*states.values()]
    return every[0].step if len(every) == 1 and every[0].step else None
