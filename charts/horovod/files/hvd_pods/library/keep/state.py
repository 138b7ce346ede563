"""What a training is made of, between two steps."""

from __future__ import annotations

import copy
import os
import re
import weakref
from pathlib import Path
from typing import Any, ClassVar

from .checkpoint import OTHER, Checkpoint
from .finishing import finisher
from .log import say
from .parts import (
    build_optimizer,
    check,
    find_difference,
    is_callback,
    read_part,
    write_part,
)
from .ranks import Ranks, find_ranks
from .record import Content, Key, Record, pack
from .restoring import Agreement, Found, agree, share, share_own
from .slots import Slots
from .worker import WorkerMemory


class State:
    """What a training is made of, between two steps.

    `parts` are models, optimizers, variables, arrays, or numbers and texts in lists and dicts; of
    these, the ones that are not changed in place are attributes: `state.losses = [...]`. `own` is
    what each rank has for itself, as its generator of random numbers: a new rank keeps what it was
    made with. `step` is the number of commits, unless commit() gets another one.

    Every `minutes`, rank 0 writes a checkpoint to the folder `output` (default: OUTPUT_PATH, and
    without that there are no checkpoints). Outside of a run of the chart, which HVD_RUN_ID names,
    nothing is kept in memory.

    Raises ValueError for a name that another State of the script has or that is no name of a file,
    and for a part that has no variables yet or that is sharded.
    """

    _all: ClassVar[weakref.WeakValueDictionary[str, State]] = weakref.WeakValueDictionary()
    # The names of states with which a fit() has come to its end.
    _fitted: ClassVar[set[str]] = set()

    def __init__(
        self,
        name: str = "main",
        own: Any = None,
        output: str | os.PathLike[str] | None = None,
        minutes: float = 10.0,
        **parts: Any,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name):
            raise ValueError(
                f"keep: {name!r} cannot be the name of a State: use letters and digits"
            )
        if name in State._all:
            raise ValueError(
                f"keep: this script has a State {name!r} already: give each one a name of its own, "
                "as in State(name='critic', ...)"
            )
        self.name = name
        self.step = 0
        self.own = own
        self._parts = list(parts)
        self.__dict__.update(parts)
        self.is_restored = False
        self._steps_of_epoch = 0
        self._series = 0
        # What callbacks of Keras have learned, which the beginning of a fit() resets.
        self._learned: dict[str, Any] = {}
        folder = output or os.environ.get("OUTPUT_PATH")
        self._checkpoint = (
            Checkpoint(Path(folder, f"keep-{name}.state").absolute(), minutes) if folder else None
        )
        self._run = os.environ.get("HVD_RUN_ID", "")
        self._memory = WorkerMemory(name, self._run)
        for part_name, part in parts.items():
            check(part_name, part)
            build_optimizer(part_name, part, parts.values())
        State._all[name] = self

    def commit(self, step: int | None = None) -> None:
        """Keep the state after a step: in memory, and now and then in a checkpoint.

        `step` is the number of the step, by default one more than the last one. Each rank has to
        call this. Where memory is full, the log says so and only checkpoints are written from then
        on. Raises TypeError for what cannot be kept, and RuntimeError where the ranks are unknown.
        """
        step = self.step + 1 if step is None else int(step)
        self._series += step < self.step
        self.step = step
        ranks = find_ranks()
        values, own = self._values()
        try:
            # First what is the rank's own, so that the shared part is never without it.
            if own:
                self._memory(f"rank-{ranks.rank}", lambda slots: slots.write(self._key, own))
            if ranks.local_rank == 0:
                self._memory("shared", lambda slots: slots.write(self._key, values))
        except OSError as problem:
            self._memory.give_up(problem, Content(values).size)
        if ranks.rank == 0 and self._checkpoint and self._checkpoint.is_due():
            self._checkpoint.write_beside(pack(self._key, values))

    def save(self) -> None:
        """Write a checkpoint on rank 0 now, as at the end of a training.

        Without a folder for it, nothing is written. Raises OSError where it cannot be written, and
        RuntimeError where the ranks are unknown.
        """
        finisher.wait()
        if find_ranks().rank == 0 and self._checkpoint:
            self._checkpoint.write(pack(self._key, self._values()[0]))

    def restore(self) -> int:
        """Leave all ranks with the newest state, and return its step; each rank has to call this.

        Where there is none, all ranks begin with the state of rank 0. Raises ValueError for a
        checkpoint of another model, and where no checkpoint could be written, unless memory has a
        newer state. Raises TypeError for what cannot be kept, and RuntimeError where the ranks are
        unknown.
        """
        ranks = find_ranks()
        found = self._look(ranks)
        if found.problem:
            say(found.problem)
        answer = found.answer(has_own=bool(self._values()[1]))
        if ranks.rank == 0:
            # If nobody has a newer one, all go on with what this process has.
            answer.steps.append(self._key if self.is_restored else Key(-1, self.step))
        agreed = agree(ranks.gather(answer))
        key = agreed.key
        if key.series < 0:
            # Each rank refuses what cannot be kept before it trains.
            Content(self._values()[0])
        record, sent_to = share(ranks, agreed, found.shared, lambda: self._values()[0])
        own = share_own(ranks, agreed, found)
        if record is not None:
            self._apply(record)
        if own is not None:
            self._apply_own(own)
        if ranks.rank == agreed.root:
            self._tell(agreed, record, sent_to)
        self.step = key.step
        self._series = max(key.series, 0)
        self.is_restored = True
        if ranks.local_rank == 0:
            self._memory("shared", lambda slots: slots.keep(key))
        self._memory(f"rank-{ranks.rank}", lambda slots: slots.keep(key))
        return self.step

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
    def _key(self) -> Key:
        return Key(self._series, self.step)

    def _values(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What all ranks have alike, and what is this rank's own, if there is any."""
        seeds: list[Any] = []
        parts = {name: read_part(getattr(self, name), seeds) for name in self._parts}
        own = {"own": read_part(self.own, []), "seeds": seeds}
        values = {
            "parts": parts,
            "steps of epoch": self._steps_of_epoch,
            "run": self._run,
            # By which the worker finds where it belongs (worker/saving.py).
            "checkpoint": str(self._checkpoint.path) if self._checkpoint else "",
        }
        return values, own if seeds or self.own is not None else {}

    def _look(self, ranks: Ranks) -> Found:
        """What this rank can read, in memory and, on rank 0, of the checkpoint.

        Records of other scripts are logged.
        """
        self._memory.remove_other_runs()
        shared = {}
        for record in self._memory("shared", Slots.records):
            if wrong := self._find_difference(record):
                say(wrong)
            else:
                shared[record.key] = record
        own = {record.key: record for record in self._memory(f"rank-{ranks.rank}", Slots.records)}
        others = self._memory.find_of_others(ranks.rank) if ranks.local_rank == 0 else {}
        problem = ""
        if ranks.rank == 0 and self._checkpoint:
            checkpoint, problem = self._checkpoint.read(self._run, self._find_difference)
            if checkpoint is not None:
                shared.setdefault(checkpoint.key, checkpoint)
        return Found(shared, own, others, problem)

    def _find_difference(self, record: Record) -> str:
        parts = {name: getattr(self, name) for name in self._parts}
        return find_difference(record, parts)

    def _tell(self, agreed: Agreement, record: Record | None, sent_to: list[int]) -> None:
        """Say on one rank what all go on from: this record, or the state of the process."""
        step = agreed.key.step
        attempt = os.environ.get("HVD_ATTEMPT", "")
        if record is not None:
            to = f", sent to {sent_to}" if sent_to else ""
            if agreed.key.series < 0:
                to += f"; another run has left it: to begin anew, {OTHER}"
            say(f"goes on after step {step}, found in {record.place}{to}")
            if agreed.new:
                say(
                    f"ranks {agreed.new} have no random numbers and the like of their own for step "
                    f"{step}: they go on with those that the script has made"
                )
        elif self.is_restored:
            say("no memory has what was committed: goes on with the state of this process")
        elif attempt not in ("", "0", "1"):
            say(
                f"no worker's memory and no checkpoint has a state of this run: attempt {attempt} "
                f"begins at step {step}"
            )

    def _apply(self, record: Record) -> None:
        """Give all parts what a record has of them."""
        kept = record.value
        self._steps_of_epoch = kept["steps of epoch"]
        for name, tree in kept["parts"].items():
            part = getattr(self, name)
            setattr(self, name, write_part(part, tree))
            if is_callback(part):
                self._learned[name] = copy.deepcopy(tree)

    def _learn(self) -> None:
        """Give callbacks of Keras what they had learned, after fit() has reset them."""
        for name, kept in self._learned.items():
            write_part(getattr(self, name), kept)
        self._learned.clear()

    def _apply_own(self, record: Record) -> None:
        """Give this rank what it has kept for itself."""
        kept = record.value
        self.own = write_part(self.own, kept["own"])
        for variable, number in zip(self._values()[1].get("seeds", ()), kept["seeds"]):
            variable.assign(number)
