"""How ranks agree on the step to continue from, and exchange its state."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Sequence

from .log import log
from .packed_state import PackedState, ShardPlace, StepKey, pack, read_packed
from .ranks import Ranks
from .shard_copies import FailureDomain


class RestoreReport(NamedTuple):
    """The report of a rank to the others before a restore.

    domain: of the rank. steps: the steps whose shared state it can read. own: the steps of which it
    has its own state. own_of_others: by rank, the steps of which other ranks have a state of their
    own on its worker. has_own: whether its script has a state of its own. is_sharded: whether a
    restore needs the own state of each rank. process: the step of rank 0's process; None on other
    ranks. problem: what is wrong with the checkpoint. checkpoints: the steps of the two checkpoints
    of a sharded state. of_other_sizes: the steps of shards of other numbers of ranks.
    """

    domain: FailureDomain
    steps: list[StepKey]
    own: list[StepKey]
    own_of_others: Mapping[int, list[StepKey]]
    has_own: bool = False
    is_sharded: bool = False
    process: StepKey | None = None
    problem: str = ""
    checkpoints: tuple[StepKey | None, ...] = ()
    of_other_sizes: Mapping[ShardPlace, list[StepKey]] = {}


class ReadableStates(NamedTuple):
    """The states that a rank can read.

    shared: the shared states by their keys. own: its own states. own_of_others: by rank, the own
    states of others on its worker. problem: what is wrong with the checkpoint. checkpoints: the
    steps of checkpoints of shards. of_other_sizes: the shards of other numbers of ranks.
    """

    shared: dict[StepKey, PackedState]
    own: dict[StepKey, PackedState]
    own_of_others: dict[int, dict[StepKey, PackedState]]
    problem: str
    checkpoints: tuple[StepKey | None, ...] = ()
    of_other_sizes: Mapping[ShardPlace, dict[StepKey, PackedState]] = {}


class SizedStep(NamedTuple):
    """A step that `size` ranks have made."""

    key: StepKey
    size: int


class Transfer(NamedTuple):
    """A rank that sends another rank the receiver's own state."""

    sender: int
    receiver: int


class Agreement(NamedTuple):
    """The step to continue from.

    root: the first rank that has it. lacking: the ranks to which it is sent. sends: which rank
    sends which other rank its own state, if that is on another worker. ranks_without_own: ranks
    whose script has a state of its own, though no shard, of which no rank has that step. newest,
    lost_shards: if shards of a newer step are lost, that step and their ranks. removed_ranks: ranks
    that have a state of their own and no longer exist. shard_holders: if another number of ranks
    has made the step, who can read each shard, by rank.
    """

    key: StepKey
    root: int
    lacking: list[int]
    sends: list[Transfer]
    ranks_without_own: list[int]
    newest: StepKey
    lost_shards: list[int]
    removed_ranks: list[int]
    shard_holders: list[int]


def agree_on_readable_step(
    ranks: Ranks, states: ReadableStates, report: Callable[[], RestoreReport]
) -> tuple[list[RestoreReport], Agreement]:
    """Return the reports of all ranks, each from `report`, and what the ranks agree on.

    Each rank reads its `states` of another number of ranks before they count. If a shard is
    damaged, its rank drops it, and all ranks report again. All ranks must call this. Raises
    ValueError as `agree_on_step` does.
    """
    while True:
        reports = ranks.gather(report())
        agreed = agree_on_step(reports)
        if not agreed.shard_holders or not any(ranks.gather(_drop_damaged(ranks, agreed, states))):
            return reports, agreed


def _drop_damaged(ranks: Ranks, agreed: Agreement, states: ReadableStates) -> bool:
    """Drop damaged shards among those that this rank must send; return whether any was damaged."""
    key = agreed.key
    is_damaged = False
    for rank, holder in enumerate(agreed.shard_holders):
        if holder != ranks.rank:
            continue
        packed_states = states.of_other_sizes[ShardPlace(len(agreed.shard_holders), rank)]
        packed = packed_states[key]
        try:
            read_packed(packed.place, packed.raw)
        except ValueError as problem:
            log(f"{problem}: not used")
            is_damaged = True
            del packed_states[key]
            if states.shared.get(key) is packed:
                del states.shared[key]
    return is_damaged


def agree_on_step(reports: Sequence[RestoreReport]) -> Agreement:
    """Return what the ranks agree on, computed from the reports of all ranks.

    Raises ValueError for a checkpoint that no rank can use, unless memory has a newer state: then
    the next checkpoint replaces it.
    """
    steps = [[*report.steps] for report in reports]
    process_key = reports[0].process
    if process_key is not None:
        # If nobody has a newer one, all go on with what the processes have.
        steps[0].append(process_key)
    holders = _find_own_holders(reports)
    holders_by_size = _find_holders_by_size(reports)
    all_keys = {key for keys in steps for key in keys}
    shard_holders: list[int] = []
    is_sharded = any(report.is_sharded for report in reports)
    if is_sharded:
        key, shard_holders = _choose_sharded_step(steps, holders, holders_by_size, process_key)
        root = _find_first_rank_with(key, steps)
        all_keys.update(key for holder_of in holders for key in holder_of)
    else:
        key, root = choose_unsharded_step(steps, [{*holder_of} for holder_of in holders])
    problem = next((report.problem for report in reports if report.problem), "")
    if problem and key == process_key and key.series < 0:
        raise ValueError(problem)
    newest = max(all_keys)
    return Agreement(
        key,
        root,
        lacking=[
            rank for rank, report in enumerate(reports) if rank != root and key not in report.steps
        ],
        sends=_find_transfers(key, holders),
        ranks_without_own=[
            rank
            for rank, report in enumerate(reports)
            if report.has_own and not is_sharded and key not in holders[rank]
        ],
        newest=newest,
        lost_shards=(
            _find_lost_shards(newest, holders, holders_by_size)
            if is_sharded and newest > key
            else []
        ),
        removed_ranks=_find_removed_ranks(key, reports),
        shard_holders=shard_holders,
    )


def _choose_sharded_step(
    steps: Sequence[Sequence[StepKey]],
    holders: Sequence[Mapping[StepKey, int]],
    holders_by_size: Mapping[SizedStep, list[int]],
    process_key: StepKey | None,
) -> tuple[StepKey, list[int]]:
    """Return the step of a sharded state to continue from, and `Agreement.shard_holders`.

    A newer step that another number of ranks has made counts if each of its shards can be read.
    """
    key_of_size = _choose_complete_step(steps, holders, process_key)
    all_keys = {key for keys in steps for key in keys}
    key = key_of_size
    shard_holders: list[int] = []
    for step_of_others, holders_of_step in holders_by_size.items():
        other_key = step_of_others.key
        # The steps of other runs do not say which of these is newer.
        is_other_run = other_key.series < 0 and key_of_size != process_key
        is_whole = min(holders_of_step) >= 0
        if other_key in all_keys and other_key > key and is_whole and not is_other_run:
            key = other_key
            shard_holders = holders_of_step
    return key, shard_holders


def _find_transfers(key: StepKey, holders: Sequence[Mapping[StepKey, int]]) -> list[Transfer]:
    """Return which rank sends which other rank its own state of a step."""
    senders = [holder_of.get(key, rank) for rank, holder_of in enumerate(holders)]
    return [Transfer(sender, rank) for rank, sender in enumerate(senders) if sender != rank]


def _find_lost_shards(
    newest: StepKey,
    holders: Sequence[Mapping[StepKey, int]],
    holders_by_size: Mapping[SizedStep, list[int]],
) -> list[int]:
    """Return the ranks whose shard of the newest step cannot be read."""
    newest_holders = [holder_of.get(newest, -1) for holder_of in holders]
    for step_of_others, holders_of_step in holders_by_size.items():
        if step_of_others.key == newest:
            newest_holders = holders_of_step
    return [rank for rank, holder in enumerate(newest_holders) if holder < 0]


def _find_removed_ranks(key: StepKey, reports: Sequence[RestoreReport]) -> list[int]:
    """Return the ranks that no longer exist, and have a state of their own of a step."""
    numbers = {
        rank for report in reports for rank, keys in report.own_of_others.items() if key in keys
    }
    return sorted(rank for rank in numbers if rank >= len(reports))


def _find_holders_by_size(reports: Sequence[RestoreReport]) -> dict[SizedStep, list[int]]:
    """Return who can read each shard of a step that another number of ranks has made.

    A holder is -1 if no rank can read the shard.
    """
    holders_by_size: dict[SizedStep, list[int]] = {}
    for holder, report in enumerate(reports):
        for place, keys in report.of_other_sizes.items():
            for key in keys:
                holders = holders_by_size.setdefault(SizedStep(key, place.size), [-1] * place.size)
                if holders[place.rank] < 0:
                    holders[place.rank] = holder
    return holders_by_size


def _find_own_holders(reports: Sequence[RestoreReport]) -> list[dict[StepKey, int]]:
    """Return, by rank, who can read its own state: the rank itself, else the first that can."""
    holders: list[dict[StepKey, int]] = [
        dict.fromkeys(report.own, rank) for rank, report in enumerate(reports)
    ]
    for holder, report in enumerate(reports):
        for rank, keys in report.own_of_others.items():
            # The ranks have other workers than before, as a spare in the place of a lost one.
            if rank < len(reports):
                for key in keys:
                    holders[rank].setdefault(key, holder)
    return holders


def choose_unsharded_step(
    steps: Sequence[Sequence[StepKey]], own_keys: Sequence[set[StepKey]]
) -> tuple[StepKey, int]:
    """Return the step to continue from, and the first rank that has it.

    By rank, `steps` are those that it can read, `own_keys` those for which it has its own state.
    The newest step counts, unless a rank ended between its own part of the newest commit and the
    shared part: then the step before counts, and the newest is made again. Raises IndexError if no
    rank has any step.
    """
    # Of several launches that have made a step, the last one counts.
    last = {key[:2]: key for key in sorted(key for keys in steps for key in keys)}
    newest = sorted(last.values(), reverse=True)[:2]
    # A rank that comes back to a worker may find what it had there long ago.
    owners = [keys for keys in own_keys if keys and max(keys) >= newest[-1]]
    complete = [key for key in newest if all(key in keys for keys in owners)]
    key = complete[0] if complete else newest[0]
    return key, _find_first_rank_with(key, steps)


def _choose_complete_step(
    steps: Sequence[Sequence[StepKey]],
    shards: Sequence[Mapping[StepKey, int]],
    process_key: StepKey | None,
) -> StepKey:
    """Return the newest step with a readable shard of each rank.

    By rank, `steps` are those of which it can read the shared state, `shards` those of its shard.
    Each process has its shard of the step `process_key`. Raises ValueError if there is no step.
    """
    all_keys = {key for keys in steps for key in keys}
    return max(
        key
        for key in all_keys
        if key == process_key or all(key in holder_of for holder_of in shards)
    )


def _find_first_rank_with(key: StepKey, steps: Sequence[Sequence[StepKey]]) -> int:
    return next(rank for rank, keys in enumerate(steps) if key in keys)


def choose_checkpoint_to_replace(checkpoints: Sequence[Sequence[StepKey | None]]) -> int:
    """Return which of the two checkpoints of a sharded state the next one replaces.

    By rank, `checkpoints` are the steps of both. The newest checkpoint that all ranks have stays.
    """
    whole = [keys[0] for keys in zip(*checkpoints) if None not in keys and len({*keys}) == 1]
    newest = max((key for key in whole if key is not None), default=None)
    first = checkpoints[0]
    return 1 if newest is not None and first and first[0] == newest else 0


def send_shared_state(
    ranks: Ranks,
    agreed: Agreement,
    shared: Mapping[StepKey, PackedState],
    read_parts: Callable[[], Any],
) -> PackedState | None:
    """Send the state of one rank to all ranks. `shared` is what this rank can read.

    Return the packed state that this rank must apply. The root has none if it continues with the
    state of its process, which `read_parts` returns. All ranks must call this.
    """
    root = agreed.root
    packed = shared.get(agreed.key)
    if not agreed.lacking:
        return packed
    for other in shared.values() if ranks.rank in agreed.lacking else ():
        if other.key[:2] == agreed.key[:2]:
            # As a worker that was away has.
            step = agreed.key.step
            log(f"{other.place} has step {step} of another launch than rank {root}: not used")
    raw = None
    if ranks.rank == root:
        # Sent from one rank to all others where a worker is new.
        raw = packed.raw if packed else memoryview(pack(agreed.key, read_parts()))
    size = ranks.gather(len(raw or b""))[root]
    sent = ranks.broadcast(raw, size, root)
    if ranks.rank in agreed.lacking:
        packed = read_packed(f"rank {root}", sent)
    return packed


def send_own_states(ranks: Ranks, agreed: Agreement, states: ReadableStates) -> PackedState | None:
    """Send other ranks their own states; return that of this rank, None without one.

    All ranks must call this.
    """
    packed = states.own.get(agreed.key)
    if not agreed.sends:
        return packed
    sent = {
        receiver: states.own_of_others[receiver][agreed.key].raw
        for sender, receiver in agreed.sends
        if sender == ranks.rank
    }
    sizes = ranks.gather({rank: len(raw) for rank, raw in sent.items()})
    received = {
        sender: memoryview(bytearray(sizes[sender][receiver]))
        for sender, receiver in agreed.sends
        if receiver == ranks.rank
    }
    ranks.deliver(sent, received)
    for raw in received.values():
        packed = read_packed("another worker", raw)
    return packed
