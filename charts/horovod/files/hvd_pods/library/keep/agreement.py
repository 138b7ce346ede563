"""How ranks agree on the step that they go on from, and hand its state round."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Sequence

from .copies import Place
from .log import log
from .packed_state import PackedState, StepKey, pack, read
from .ranks import Ranks


class RestoreReport(NamedTuple):
    """What a rank reports to the others before a restore.

    place: where it is. steps: those that it can read. own: those of what it has kept for itself.
    others: by rank, those of what other ranks have kept for themselves on its worker. has_own:
    whether its script has something for itself. is_sharded: whether nothing can go on without what
    each rank has for itself. process: the step of this process, which rank 0 tells. problem: what
    is wrong with the checkpoint. checkpoints: the steps of the two that a sharded state has. sizes:
    the steps of shards of other numbers of ranks, by such a number and a rank.
    """

    place: Place
    steps: list[StepKey]
    own: list[StepKey]
    others: Mapping[int, list[StepKey]]
    has_own: bool = False
    is_sharded: bool = False
    process: StepKey | None = None
    problem: str = ""
    checkpoints: tuple[StepKey | None, ...] = ()
    sizes: Mapping[tuple[int, int], list[StepKey]] = {}


class FoundStates(NamedTuple):
    """What a rank can read: states by their keys, what it and, by rank, others on its worker have
    kept for themselves, what is wrong with the checkpoint, the steps of checkpoints of shards, and
    shards of other numbers of ranks, by such a number and a rank.
    """

    shared: dict[StepKey, PackedState]
    own: dict[StepKey, PackedState]
    others: dict[int, dict[StepKey, PackedState]]
    problem: str
    checkpoints: tuple[StepKey | None, ...] = ()
    sizes: Mapping[tuple[int, int], dict[StepKey, PackedState]] = {}


class Send(NamedTuple):
    """A rank that sends another one what that has kept for itself."""

    sender: int
    receiver: int


class Agreement(NamedTuple):
    """The step to go on from.

    root: the first rank that has it. lacking: ranks to which it is sent. sends: who sends what
    ranks have kept for themselves, where that is on another worker than theirs. new: ranks whose
    script has something for itself, of which nobody has that step. newest, lost: where shards of a
    newer step are lost, that step and their ranks. gone: ranks that have kept something for
    themselves, and that there are no more. divided: where the step has been made by another number
    of ranks, by rank who can read its shard.
    """

    key: StepKey
    root: int
    lacking: list[int]
    sends: list[Send]
    new: list[int]
    newest: StepKey
    lost: list[int]
    gone: list[int]
    divided: list[int]


def agree_on_whole(
    ranks: Ranks, found: FoundStates, report: Callable[[], RestoreReport]
) -> tuple[list[RestoreReport], Agreement]:
    """The reports of all ranks, which each `report` returns, and what follows from them.

    What this rank has `found` of shards of another number of ranks is read before it counts. Where
    one is damaged, it is dropped, and all answer again. All ranks have to call this. Raises
    ValueError as `agree`.
    """
    while True:
        reports = ranks.gather(report())
        agreed = agree(reports)
        if not agreed.divided or not any(ranks.gather(_drop_damaged(ranks, agreed, found))):
            return reports, agreed


def _drop_damaged(ranks: Ranks, agreed: Agreement, found: FoundStates) -> bool:
    """Drop damaged shards among those that this rank is to send; whether there were any."""
    key = agreed.key
    is_damaged = False
    for rank, holder in enumerate(agreed.divided):
        if holder != ranks.rank:
            continue
        packed_states = found.sizes[len(agreed.divided), rank]
        packed = packed_states[key]
        try:
            read(packed.place, packed.raw)
        except ValueError as problem:
            log(f"{problem}: not used")
            is_damaged = True
            del packed_states[key]
            if found.shared.get(key) is packed:
                del found.shared[key]
    return is_damaged


def agree(reports: Sequence[RestoreReport]) -> Agreement:
    """What follows from the reports of all ranks.

    Raises ValueError for a checkpoint that nobody can use, unless memory has a newer state: the
    next checkpoint replaces it then.
    """
    steps = [[*report.steps] for report in reports]
    begin = reports[0].process
    if begin is not None:
        # If nobody has a newer one, all go on with what the processes have.
        steps[0].append(begin)
    holders = _find_holders(reports)
    known = {key for each in steps for key in each}
    others = _find_others(reports)
    divided: list[int] = []
    if any(report.is_sharded for report in reports):
        same, root = choose_whole(steps, holders, begin)
        key = same
        for (there, _), each in others.items():
            # The steps of other runs do not say which of these is newer.
            is_other_run = there.series < 0 and same != begin
            if there in known and there > key and min(each) >= 0 and not is_other_run:
                key = there
                root = _first_with(there, steps)
                divided = each
        known.update(key for each in holders for key in each)
    else:
        key, root = choose(steps, [{*each} for each in holders])
    wrong = next((report.problem for report in reports if report.problem), "")
    if wrong and key == begin and key.series < 0:
        raise ValueError(wrong)
    senders = [each.get(key, rank) for rank, each in enumerate(holders)]
    newest = max(known)
    newest_holders = [each.get(newest, -1) for each in holders]
    for (there, _), each in others.items():
        newest_holders = each if there == newest else newest_holders
    return Agreement(
        key,
        root,
        lacking=[
            rank for rank, report in enumerate(reports) if rank != root and key not in report.steps
        ],
        sends=[Send(sender, rank) for rank, sender in enumerate(senders) if sender != rank],
        new=[
            rank
            for rank, report in enumerate(reports)
            if report.has_own and key not in holders[rank]
        ],
        newest=newest,
        lost=[rank for rank, holder in enumerate(newest_holders) if holder < 0],
        gone=sorted(
            {
                rank
                for report in reports
                for rank, keys in report.others.items()
                if rank >= len(reports) and key in keys
            }
        ),
        divided=divided,
    )


def _find_others(reports: Sequence[RestoreReport]) -> dict[tuple[StepKey, int], list[int]]:
    """By steps that other numbers of ranks have made, and such a number, who can read each shard.

    The number is -1 where nobody can.
    """
    found: dict[tuple[StepKey, int], list[int]] = {}
    for holder, report in enumerate(reports):
        for (size, rank), keys in report.sizes.items():
            for key in keys:
                each = found.setdefault((key, size), [-1] * size)
                each[rank] = holder if each[rank] < 0 else each[rank]
    return found


def _find_holders(reports: Sequence[RestoreReport]) -> list[dict[StepKey, int]]:
    """By rank, who can read what it has kept for itself: it, or else the first rank that can."""
    holders: list[dict[StepKey, int]] = [
        dict.fromkeys(report.own, rank) for rank, report in enumerate(reports)
    ]
    for holder, report in enumerate(reports):
        for rank, keys in report.others.items():
            # The ranks have other workers than before, as a spare in the place of a lost one.
            if rank < len(reports):
                for key in keys:
                    holders[rank].setdefault(key, holder)
    return holders


def choose(steps: Sequence[Sequence[StepKey]], own: Sequence[set[StepKey]]) -> tuple[StepKey, int]:
    """The step to go on from, and the first rank that has it.

    By rank, `steps` are those that it can read, `own` those for which it has what is its own. The
    newest step counts, but the one before if a rank was ended between its own part of the newest
    commit and the shared one: that step is made again. Raises IndexError if no rank has any.
    """
    # Of several launches that have made a step, the last one counts.
    last = {key[:2]: key for key in sorted(key for each in steps for key in each)}
    newest = sorted(last.values(), reverse=True)[:2]
    # A rank that comes back to a worker may find what it had there long ago.
    owners = [each for each in own if each and max(each) >= newest[-1]]
    complete = [key for key in newest if all(key in each for each in owners)]
    key = complete[0] if complete else newest[0]
    return key, _first_with(key, steps)


def choose_whole(
    steps: Sequence[Sequence[StepKey]],
    shards: Sequence[Mapping[StepKey, int]],
    begin: StepKey | None,
) -> tuple[StepKey, int]:
    """The newest step of which each rank's shard is somewhere, and the first rank that has it.

    By rank, `steps` are those that it can read of what all have alike, `shards` those of its shard.
    Each process has its shard of the step `begin`. Raises ValueError where there is no step.
    """
    known = {key for each in steps for key in each}
    key = max(key for key in known if key == begin or all(key in each for each in shards))
    return key, _first_with(key, steps)


def _first_with(key: StepKey, steps: Sequence[Sequence[StepKey]]) -> int:
    return next(rank for rank, each in enumerate(steps) if key in each)


def choose_turn(checkpoints: Sequence[Sequence[StepKey | None]]) -> int:
    """Which of the two checkpoints of a sharded state the next one replaces.

    By rank, `checkpoints` are the steps of both. The newest one that all ranks have stays.
    """
    whole = [keys[0] for keys in zip(*checkpoints) if None not in keys and len({*keys}) == 1]
    newest = max((key for key in whole if key is not None), default=None)
    first = checkpoints[0]
    return 1 if newest is not None and first and first[0] == newest else 0


def share(
    ranks: Ranks,
    agreed: Agreement,
    shared: Mapping[StepKey, PackedState],
    read_parts: Callable[[], Any],
) -> PackedState | None:
    """Give all ranks the state of one. `shared` is what this rank can read.

    Return the packed state that this rank is to apply. The root has none where it goes on with the
    state of its process, which `read_parts` returns. All ranks have to call this.
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
        packed = read(f"rank {root}", sent)
    return packed


def share_own(ranks: Ranks, agreed: Agreement, found: FoundStates) -> PackedState | None:
    """What this rank has kept for itself, here or on another worker; None if nobody has it.

    All ranks have to call this.
    """
    own = found.own.get(agreed.key)
    if not agreed.sends:
        return own
    sent = {
        receiver: found.others[receiver][agreed.key].raw
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
        own = read("another worker", raw)
    return own
