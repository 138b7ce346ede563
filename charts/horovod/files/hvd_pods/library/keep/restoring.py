"""How ranks agree on the step that they go on from, and hand its state round."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Sequence

from .log import say
from .ranks import Ranks
from .record import Key, Record, pack, read


class Answer(NamedTuple):
    """What a rank tells the others.

    steps: those that it can read. own: those of what it has kept for itself. others: by rank, those
    of what other ranks have kept for themselves on its worker. has_own: whether its script has
    something for itself. problem: what is wrong with the checkpoint.
    """

    steps: list[Key]
    own: list[Key]
    others: Mapping[int, list[Key]]
    has_own: bool = False
    problem: str = ""


class Found(NamedTuple):
    """What a rank can read: states by their keys, what it and, by rank, others on its worker have
    kept for themselves, and what is wrong with the checkpoint.
    """

    shared: dict[Key, Record]
    own: dict[Key, Record]
    others: dict[int, dict[Key, Record]]
    problem: str

    def answer(self, *, has_own: bool) -> Answer:
        """What the other ranks have to know of it."""
        others = {rank: [*records] for rank, records in self.others.items()}
        return Answer([*self.shared], [*self.own], others, has_own, self.problem)


class Agreement(NamedTuple):
    """The step to go on from.

    root: the first rank that has it. moved: ranks whose own part of it is on another worker than
    theirs. new: ranks whose script has something for itself, of which nobody has that step.
    """

    key: Key
    root: int
    moved: list[int]
    new: list[int]


def agree(answers: Sequence[Answer]) -> Agreement:
    """What follows from the answers of all ranks.

    Raises ValueError for a checkpoint that nobody can use, unless memory has a newer state: the
    next checkpoint replaces it then.
    """
    wrong = next((answer.problem for answer in answers if answer.problem), "")
    if wrong and all(key.series < 0 for answer in answers for key in answer.steps):
        raise ValueError(wrong)
    own = [{*answer.own} for answer in answers]
    for answer in answers:
        for rank, keys in answer.others.items():
            # The ranks have other workers than before, as a spare in the place of a lost one.
            if rank < len(answers):
                own[rank].update(keys)
    key, root = choose([answer.steps for answer in answers], own)
    has = [key in keys for keys in own]
    return Agreement(
        key,
        root,
        moved=[rank for rank, answer in enumerate(answers) if has[rank] and key not in answer.own],
        new=[rank for rank, answer in enumerate(answers) if answer.has_own and not has[rank]],
    )


def choose(steps: Sequence[Sequence[Key]], own: Sequence[set[Key]]) -> tuple[Key, int]:
    """The step to go on from, and the first rank that has it.

    By rank, `steps` are those that it can read, `own` those for which it has what is its own. The
    newest step counts, but the one before if a rank was ended between its own part of the newest
    commit and the shared one: that step is made again. Raises IndexError if no rank has any.
    """
    newest = sorted({step for each in steps for step in each}, reverse=True)[:2]
    # A rank that comes back to a worker may find what it had there long ago.
    owners = [each for each in own if each and max(each) >= newest[-1]]
    complete = [step for step in newest if all(step in each for each in owners)]
    step = complete[0] if complete else newest[0]
    return step, next(rank for rank, each in enumerate(steps) if step in each)


def share(
    ranks: Ranks, agreed: Agreement, shared: Mapping[Key, Record], read_parts: Callable[[], Any]
) -> tuple[Record | None, list[int]]:
    """Give all ranks the state of one. `shared` is what this rank can read.

    Return the record that this rank is to apply, and the ranks to which it was sent. The root has
    none where it goes on with the state of its process, which `read_parts` returns. All ranks have
    to call this.
    """
    root = agreed.root
    record = shared.get(agreed.key)
    launches = ranks.gather(record.launch if record else None)
    # Also those that have the state of another launch, as a worker that was away has.
    lacking = [
        rank
        for rank, launch in enumerate(launches)
        if rank != root and (launch is None or launch != launches[root])
    ]
    if not lacking:
        return record, lacking
    if record is not None and ranks.rank in lacking:
        step = agreed.key.step
        say(f"{record.place} has step {step} of another launch than rank {root}: not used")
        record = None
    raw = None
    if ranks.rank == root:
        # Sent from one rank to all others where a worker is new.
        raw = record.raw if record else memoryview(pack(agreed.key, read_parts()))
    size = ranks.gather(len(raw or b""))[root]
    sent = ranks.broadcast(raw, size, root)
    if ranks.rank != root and record is None:
        record = read(f"rank {root}", sent)
    return record, lacking


def share_own(ranks: Ranks, agreed: Agreement, found: Found) -> Record | None:
    """What this rank has kept for itself, here or on another worker; None if nobody has it.

    All ranks have to call this.
    """
    own = found.own.get(agreed.key)
    if not agreed.moved:
        return own
    here = {rank: found.others.get(rank, {}).get(agreed.key) for rank in agreed.moved}
    given = {rank: bytes(record.raw) for rank, record in here.items() if record is not None}
    for each in ranks.gather(given):
        if own is None and ranks.rank in each:
            own = read("another worker", memoryview(each[ranks.rank]))
    return own
