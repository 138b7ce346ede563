"""What a training is made of, between two steps."""

from __future__ import annotations

import copy
import os
import re
import weakref
from pathlib import Path
from typing import Any, ClassVar, Mapping

from .checkpoint import OTHER, Checkpoint, ShardCheckpoints
from .content import Content
from .copies import Copies, Outcome, find_place
from .finishing import finisher
from .jax_arrays import find_jax, names_axis
from .log import say
from .parts import (
    build_optimizer,
    check,
    find_difference,
    is_callback,
    read_part,
    write_part,
)
from .ranks import JaxRanks, Ranks, find_ranks, find_sharded_ranks
from .read_again import Reader, find_reader
from .record import Key, Record, find_launch, pack
from .restoring import Agreement, Answer, Found, agree_on_whole, choose_turn, share, share_own
from .shards import (
    divide,
    find_division,
    find_shard_difference,
    find_sharded,
    form_of_shard,
    leaves,
    read_shard,
    write_shard,
)
from .slots import Slots
from .worker import WorkerMemory


class State:
    """What a training is made of, between two steps.

    `parts` are models, optimizers, variables, arrays, or numbers and texts in lists and dicts; of
    these, the ones that are not changed in place are attributes: `state.losses = [...]`. `own` is
    what each rank has for itself, as its generator of random numbers: a new rank keeps what it was
    made with. `step` is the number of commits, unless commit() gets another one.

    Of sharded parts, each rank keeps its shard, and a copy of it is sent to another worker beside
    the next step. Each rank has to call commit() and save(), too.

    Every `minutes`, rank 0 writes a checkpoint to the folder `output` (default: OUTPUT_PATH, and
    without that there are no checkpoints). Outside of a run of the chart, which HVD_RUN_ID names,
    nothing is kept in memory.

    Raises ValueError for a name that another State of the script has or that is no name of a file,
    and for a part that has no variables yet, or whose shards are not kept.
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
        # What reads models and optimizers of PyTorch again.
        self._readers: dict[str, Reader] = {}
        self.__dict__.update(parts)
        self.is_restored = False
        self._steps_of_epoch = 0
        self._series = 0
        # The launch that has made the step.
        self._launch = find_launch()
        # What callbacks of Keras have learned, which the beginning of a fit() resets.
        self._learned: dict[str, Any] = {}
        folder = output or os.environ.get("OUTPUT_PATH")
        self._folder = Path(folder) if folder else None
        self._minutes = minutes
        self._checkpoint = (
            Checkpoint((self._folder / f"keep-{name}.state").absolute(), minutes)
            if self._folder
            else None
        )
        self._run = os.environ.get("HVD_RUN_ID", "")
        self._memory = WorkerMemory(name, self._run)
        for part_name, part in parts.items():
            check(part_name, part)
            build_optimizer(part_name, part, parts.values())
        self._sharded = [each for each, part in parts.items() if find_sharded(part)]
        self._copies: Copies | None = None
        self._shard_checkpoints: ShardCheckpoints | None = None
        # What came in the way of keeping a shard in memory, until all ranks know it.
        self._problem: OSError | None = None
        State._all[name] = self

    def commit(self, step: int | None = None) -> None:
        """Keep the state after a step: in memory, and now and then in a checkpoint.

        `step` is the number of the step, by default one more than the last one. Each rank has to
        call this. Where memory is full, the log says so and only checkpoints are written from then
        on. Raises TypeError for what cannot be kept, and RuntimeError where the ranks are unknown.
        """
        step = self.step + 1 if step is None else int(step)
        launch = find_launch()
        # What is committed once more is not what other ranks may have of the same step.
        is_anew = step < self.step or (
            self._sharded and Key(self._series, step, launch) == self._key
        )
        self._series += bool(is_anew)
        self.step = step
        self._launch = launch
        if self._sharded:
            self._commit_shard(self._find_ranks())
            return
        ranks = self._find_ranks()
        values, own = self._values()
        try:
            self._write(ranks, values, own)
        except OSError as problem:
            self._memory.give_up(problem, Content(values).size)
        if ranks.rank == 0 and self._checkpoint and self._checkpoint.is_due():
            self._checkpoint.write_beside(pack(self._key, values))

    def _write(
        self,
        ranks: Ranks,
        values: dict[str, Any],
        own: dict[str, Any],
        *,
        where_missing: bool = False,
    ) -> None:
        def write(slots: Slots, value: dict[str, Any]) -> None:
            if not where_missing or slots.find(self._key) is None:
                slots.write(self._key, value)

        # First what is the rank's own, so that the shared part is never without it.
        if own:
            self._memory(f"rank-{ranks.rank}", lambda slots: write(slots, own))
        if ranks.local_rank == 0:
            self._memory("shared", lambda slots: write(slots, values))

    def _commit_shard(self, ranks: Ranks) -> None:
        """Keep the shard of this rank, after all ranks have what was committed before."""
        if self._copies is None:
            raise RuntimeError("keep: the state is sharded: call restore() before commit()")
        before = self._copies.end()
        if self._memory.is_there and not before.is_kept:
            values, own = self._values()
            problem = self._problem or "another rank has no room"
            self._memory.give_up(problem, 2 * Content(own).size + Content(values).size)
        elif ranks.local_rank == 0:
            self._memory.remove_shards(self._copies.here)
        self._keep_shard(ranks, self._copies, before)

    def _keep_shard(
        self, ranks: Ranks, copies: Copies, before: Outcome, *, where_missing: bool = False
    ) -> None:
        """Keep the shard of this rank, and begin to copy it to another worker.

        With `where_missing`, memory that has this step stays as it is: until all shards are in two
        workers, the step before may be the only one that another loss would leave complete.
        """
        values, own = self._values()
        try:
            self._write(ranks, values, own, where_missing=where_missing)
        except OSError as problem:
            self._problem = problem
        disk = self._shard_checkpoints
        if disk and before.is_due:
            checkpoint = disk.take(were_written=before.was_written)
            checkpoint.write_beside(self._pack_shard(ranks, values, own))
        copies.begin(
            self._key,
            is_ready=disk is not None and disk.is_ready(ranks.rank),
            was_written=disk is None or disk.was_written,
        )

    def _pack_shard(self, ranks: Ranks, values: dict[str, Any], own: dict[str, Any]) -> bytearray:
        """What a rank writes to its checkpoint; rank 0 adds what all have alike."""
        return pack(self._key, {**own, **values} if ranks.rank == 0 else own)

    def save(self) -> None:
        """Write a checkpoint on rank 0 now, as at the end of a training.

        Of a sharded state, each rank writes its shard, and has to call this. Without a folder for
        it, nothing is written. Raises OSError where it cannot be written, and RuntimeError where
        the ranks are unknown.
        """
        finisher.wait()
        ranks = self._find_ranks()
        if self._sharded:
            self._save_shard(ranks)
        elif ranks.rank == 0 and self._checkpoint:
            self._checkpoint.write(pack(self._key, self._values()[0]))

    def _save_shard(self, ranks: Ranks) -> None:
        if self._copies is None:
            raise RuntimeError("keep: the state is sharded: call restore() before save()")
        self._copies.end()
        disk = self._shard_checkpoints
        if disk is not None:
            disk.wait()
            checkpoint = disk.take(were_written=all(ranks.gather(disk.was_written)))
            checkpoint.write(self._pack_shard(ranks, *self._values()))

    def restore(self) -> int:
        """Leave all ranks with the newest state, and return its step; each rank has to call this.

        Where there is none, all ranks begin with the state of rank 0. Raises ValueError for a
        checkpoint of another model, and where no checkpoint could be written, unless memory has a
        newer state. Raises TypeError for what cannot be kept, and RuntimeError where the ranks are
        unknown.
        """
        ranks = self._find_ranks()
        if self._copies is not None:
            self._copies.end()
        found = self._look(ranks)
        if found.problem:
            say(found.problem)
        answers, agreed = agree_on_whole(ranks, found, lambda: self._answer(ranks, found))
        key = agreed.key
        if key.series < 0:
            # Each rank refuses what cannot be kept before it trains.
            Content(self._values())
        record = share(ranks, agreed, found.shared, lambda: self._values()[0])
        own: dict[str, Any] | None
        if agreed.divided:
            parts = {name: getattr(self, name) for name in self._sharded}
            own = divide(ranks, key, agreed.divided, found.sizes, parts)
        else:
            mine = share_own(ranks, agreed, found)
            own = None if mine is None else mine.value
        if record is not None:
            self._apply(record)
        if own is not None:
            self._apply_own(own)
        if ranks.rank == agreed.root:
            self._tell(agreed, record, self._find_other_sizes(ranks.size))
        self.step = key.step
        # Where a process restores once more, or shards are divided, its steps are counted anew.
        is_anew = bool(agreed.divided) or bool(self._sharded and self.is_restored)
        self._series = max(key.series, 0) + int(is_anew)
        self._launch = find_launch() if key.series < 0 or agreed.divided else key.launch
        self.is_restored = True
        if ranks.local_rank == 0:
            self._memory("shared", lambda slots: slots.keep(key))
        self._memory(f"rank-{ranks.rank}", lambda slots: slots.keep(key))
        if self._sharded:
            self._copy_again(ranks, answers, key, is_found=own is not None)
        return self.step

    def _answer(self, ranks: Ranks, found: Found) -> Answer:
        """What the other ranks have to know of what this one has found."""
        process = self._key if self.is_restored else Key(-1, self.step)
        return Answer(
            find_place(self._memory.folder),
            [*found.shared],
            [*found.own],
            {rank: [*records] for rank, records in found.others.items()},
            has_own=bool(self._values()[1]),
            is_sharded=bool(self._sharded),
            process=process if ranks.rank == 0 else None,
            problem=found.problem,
            checkpoints=found.checkpoints,
            sizes={place: [*records] for place, records in found.sizes.items()},
        )

    def _copy_again(self, ranks: Ranks, answers: list[Answer], key: Key, *, is_found: bool) -> None:
        """Let each shard be in two workers again, after one of them was lost."""
        copies = Copies(self._memory, ranks, [answer.place for answer in answers])
        self._copies = copies
        if self._shard_checkpoints is not None:
            self._shard_checkpoints.begin_with(
                choose_turn([answer.checkpoints for answer in answers])
            )
        if not self._memory.is_there:
            return
        if ranks.rank == 0:
            copies.tell()

        def keep(slots: Slots) -> None:
            slots.records()
            slots.keep(key)

        for rank in copies.taken:
            self._memory(f"rank-{rank}", keep)
        if is_found:
            if ranks.local_rank == 0:
                self._memory.remove_shards(copies.here, but=key)
            self._keep_shard(ranks, copies, copies.end(), where_missing=True)

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
        return Key(self._series, self.step, self._launch)

    def _find_ranks(self) -> Ranks:
        return find_sharded_ranks() if self._sharded else find_ranks()

    def _values(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What all ranks have alike, and what is this rank's own, if there is any."""
        seeds: list[Any] = []
        parts = {name: self._read(name, part, seeds) for name, part in self._parts_alike.items()}
        own: dict[str, Any] = {"own": read_part(self.own, []), "seeds": seeds}
        fixed_size = ""
        if self._sharded:
            ranks = self._find_ranks()
            parts_here = {name: getattr(self, name) for name in self._sharded}
            shards = {name: read_shard(part) for name, part in parts_here.items()}
            own["shards"] = shards
            own["forms"] = {
                name: form_of_shard(part, shards[name]) for name, part in parts_here.items()
            }
            own.update({"rank": ranks.rank, "size": ranks.size, "run": self._run})
            if not all(whole for whole, _ in own["forms"].values()):
                fixed_size = str(ranks.size)
        elif self._is_divided_alone():
            fixed_size = "1"
        # What ranks have alike is no state without their shards, which other workers have.
        is_whole = self._checkpoint is not None and not self._sharded
        values = {
            "parts": parts,
            "steps of epoch": self._steps_of_epoch,
            "run": self._run,
            # By which the worker finds where it belongs (worker/saving.py).
            "checkpoint": str(self._checkpoint.path) if self._checkpoint and is_whole else "",
            # The number of ranks without which it is of no use; empty where any number has one.
            "fixed size": fixed_size,
        }
        return values, own if self._sharded or seeds or self.own is not None else {}

    def _read(self, name: str, part: Any, seeds: list[Any]) -> Any:
        reader = self._readers.get(name)
        if reader is None or reader.part is not part:
            reader = find_reader(part)
            if reader is None:
                return read_part(part, seeds)
            self._readers[name] = reader
        return reader.read()

    def _is_divided_alone(self) -> bool:
        """Whether this process is the only one of JAX, and has arrays divided over its devices.

        Of more processes, each would have a part of these, and the state would be no use.
        """
        if find_jax() is None:
            return False
        ranks = find_ranks()
        is_alone = isinstance(ranks, JaxRanks) and ranks.size == 1
        return is_alone and any(map(names_axis, leaves([*self._parts_alike.values()])))

    def _look(self, ranks: Ranks) -> Found:
        """What this rank can read, in memory and, on rank 0, of the checkpoint.

        Of a sharded state, each rank reads its checkpoints. Records of other scripts are logged.
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
        if self._sharded:
            return self._look_for_shards(ranks, Found(shared, own, others, ""))
        problem = ""
        if ranks.rank == 0 and self._checkpoint:
            checkpoint, problem = self._checkpoint.read(self._run, self._find_difference)
            if checkpoint is not None:
                shared.setdefault(checkpoint.key, checkpoint)
        return Found(shared, own, others, problem)

    def _look_for_shards(self, ranks: Ranks, found: Found) -> Found:
        """Of what was found, the shards that are this script's, and those of checkpoints."""
        # What is wrong with a shard on another worker, that worker has to know.
        forms = ranks.gather(self._values()[1]["forms"])

        def find_difference(record: Record, rank: int = ranks.rank) -> str:
            return find_shard_difference(record, rank, ranks.size, forms[rank])

        own = {}
        sizes: dict[tuple[int, int], dict[Key, Record]] = {}
        disk = self._look_for_other_sizes(ranks.size, forms[0]) if ranks.rank == 0 else []
        in_memory = [record for each in found.others.values() for record in each.values()]
        for record in [*found.own.values(), *in_memory, *disk]:
            size, rank = find_division(record, forms[ranks.rank])
            if size not in (0, ranks.size):
                sizes.setdefault((size, rank), {}).setdefault(record.key, record)
            elif record is not found.own.get(record.key):
                continue
            elif wrong := find_difference(record):
                say(wrong)
            else:
                own[record.key] = record
        others = {
            rank: {key: each for key, each in records.items() if not find_difference(each, rank)}
            for rank, records in found.others.items()
            if rank < ranks.size
        }
        shared = found.shared
        if self._folder is None:
            return Found(shared, own, others, "", sizes=sizes)
        if self._shard_checkpoints is None:
            self._shard_checkpoints = ShardCheckpoints(
                self._folder, self.name, ranks.rank, ranks.size, self._minutes
            )
        read = [each.read(self._run, find_difference) for each in self._shard_checkpoints.both]
        on_disk = [record for record, _ in read]
        for each in filter(None, on_disk):
            own.setdefault(each.key, each)
            if ranks.rank == 0:
                shared.setdefault(each.key, each)
        problem = next((problem for _, problem in read if problem), "")
        keys = tuple(each.key if each else None for each in on_disk)
        for record in disk:
            if "parts" in record.value and not self._find_difference(record):
                shared.setdefault(record.key, record)
        return Found(shared, own, others, problem, keys, sizes)

    def _look_for_other_sizes(self, size: int, forms: Mapping[str, list[str]]) -> list[Record]:
        """Checkpoints of shards that can be divided, whose arrays are not read yet.

        They are of any number of ranks but `size`.
        """

        def find_difference(record: Record) -> str:
            return "" if find_division(record, forms)[0] else "other parts"

        paths = [*self._folder.glob(f"keep-{self.name}-rank-*-of-*.state")] if self._folder else []
        read = [
            Checkpoint(path, self._minutes).read(self._run, find_difference, is_checked=False)[0]
            for path in paths
            if f"-of-{size}." not in path.name
        ]
        return [record for record in read if record is not None]

    @property
    def _parts_alike(self) -> dict[str, Any]:
        """The parts that all ranks have alike."""
        return {name: getattr(self, name) for name in self._parts if name not in self._sharded}

    def _find_difference(self, record: Record) -> str:
        return find_difference(record, self._parts_alike)

    def _tell(self, agreed: Agreement, record: Record | None, others: list[str]) -> None:
        """Say on one rank what all go on from: this record, or the state of the process."""
        step = agreed.key.step
        attempt = os.environ.get("HVD_ATTEMPT", "")
        if self._sharded and agreed.lost and agreed.newest > agreed.key:
            say(
                f"step {agreed.newest.step} is not complete: no worker has the shards of ranks "
                f"{agreed.lost}"
            )
        if record is not None:
            to = f", sent to {agreed.lacking}" if agreed.lacking else ""
            if agreed.key.series < 0:
                to += f"; another run has left it: to begin anew, {OTHER}"
            if agreed.divided:
                to += f"; shards of {len(agreed.divided)} ranks are divided anew"
            say(f"goes on after step {step}, found in {record.place}{to}")
            if agreed.new and not self._sharded:
                say(
                    f"ranks {agreed.new} have no random numbers and the like of their own for step "
                    f"{step}: they go on with those that the script has made"
                )
            if agreed.gone:
                say(f"ranks {agreed.gone} are no more: what they had of their own is not used")
        elif others:
            say(f"begins at step {step}: {others} are of another number of ranks, and are not used")
        elif self.is_restored:
            say("no memory has what was committed: goes on with the state of this process")
        elif attempt not in ("", "0", "1"):
            say(
                f"no worker's memory and no checkpoint has a state of this run: attempt {attempt} "
                f"begins at step {step}"
            )

    def _find_other_sizes(self, size: int) -> list[str]:
        """Checkpoints of shards of other numbers of ranks."""
        if not self._sharded or self._folder is None:
            return []
        names = {path.name for path in self._folder.glob(f"keep-{self.name}-rank-0-of-*.state")}
        return sorted(name for name in names if f"-of-{size}." not in name)

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

    def _apply_own(self, kept: Mapping[str, Any]) -> None:
        """Give this rank what it has kept for itself; a rank that is new has nothing of its own."""
        if "own" in kept:
            self.own = write_part(self.own, kept["own"])
            for variable, number in zip(self._values()[1].get("seeds", ()), kept["seeds"]):
                variable.assign(number)
        for name in self._sharded:
            setattr(self, name, write_shard(getattr(self, name), kept["shards"][name]))


def last_step() -> int | None:
    """The step that the only State of this process has committed or restored last.

    None before that, and with several states, of which each has steps of its own.
    """
    states = [*State._all.values()]
    return states[0].step if len(states) == 1 and states[0].step else None
