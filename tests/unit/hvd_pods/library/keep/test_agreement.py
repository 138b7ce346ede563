"""How ranks agree on the state that they go on from."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvd_pods.library import keep
from hvd_pods.library.keep import agreement, packed_state, ranks
from hvd_pods.library.keep.packed_state import ShardPlace
from hvd_pods.library.keep.shard_copies import FailureDomain
from tests.unit.hvd_pods.library.keep.scripts import resume, train
from tests.unit.hvd_pods.library.keep.two_workers import TwoWorkers

# What a third rank kept on the worker of rank 1, and a step before on all of them.
NEWEST = keep.StepKey(0, 9, 1)
BEFORE = keep.StepKey(0, 8, 1)


def has(steps: list[int], own: list[int] | None = None) -> tuple[list[int], list[int]]:
    """What a rank has."""
    return steps, own or []


def report_with(
    newer: list[keep.StepKey], before: list[int], newest: list[int]
) -> agreement.RestoreReport:
    """What a rank reports that has these shards of three, of the step before and of the newest."""
    sizes: dict[ShardPlace, list[keep.StepKey]] = {}
    for key, shards in ((NEWEST, newest), (BEFORE, before)):
        for shard in shards:
            sizes.setdefault(ShardPlace(3, shard), []).append(key)
    return agreement.RestoreReport(
        FailureDomain("node", "worker"),
        [BEFORE, NEWEST, *newer],
        newer,
        {},
        is_sharded=True,
        process=keep.StepKey(-1, 0),
        of_other_sizes=sizes,
    )


def rename_rank(worker: Path, before: int, *after: int) -> None:
    """Let what a rank has kept be that of other ranks, or of none."""
    for path in [*worker.glob(f"one/*-rank-{before}.*")]:
        content = path.read_bytes()
        path.unlink()
        for rank in after:
            path.with_name(path.name.replace(f"rank-{before}", f"rank-{rank}")).write_bytes(content)


def keep_step(path: Path) -> int:
    """The step of a packed state."""
    return packed_state.read_file(path).key.step


@pytest.fixture
def workers(worker: Path, monkeypatch: pytest.MonkeyPatch) -> TwoWorkers:
    monkeypatch.delenv("OUTPUT_PATH")
    return TwoWorkers(worker, monkeypatch)


@pytest.mark.parametrize(
    ("steps_of_ranks", "chosen"),
    [
        pytest.param([has([0]), has([])], (0, 0), id="a start"),
        pytest.param([has([0, 4, 5]), has([4, 5])], (5, 0), id="all have it"),
        pytest.param([has([0, 4]), has([4, 5])], (5, 1), id="one was faster"),
        pytest.param([has([0]), has([4, 5])], (5, 1), id="rank 0 is new"),
        pytest.param([has([0, 5], [4, 5]), has([], [])], (5, 0), id="rank 1 is new"),
        pytest.param(
            [has([0, 4, 5], [4, 5]), has([4], [3, 4])],
            (4, 0),
            id="own part is missing",
        ),
        pytest.param(
            [has([0, 499, 500], [499, 500]), has([99, 100], [99, 100])],
            (500, 0),
            id="a worker that was away",
        ),
        pytest.param(
            [has([500, 501], [499, 500]), has([90, 91], [90, 91])],
            (500, 0),
            id="a worker that was away, and an own part is missing",
        ),
    ],
)
def test_ranks_agree_on_the_newest_step(
    steps_of_ranks: list[tuple[list[int], list[int]]], chosen: tuple[int, int]
) -> None:
    keys = [[[keep.StepKey(0, step) for step in each] for each in pair] for pair in steps_of_ranks]
    key, root = agreement.choose_unsharded_step(
        [steps for steps, _ in keys], [{*own} for _, own in keys]
    )
    assert (key.step, root) == chosen


@pytest.mark.parametrize(
    ("shards", "own", "step", "divided", "lost"),
    [
        pytest.param([[0], [1, 2]], [], 9, [0, 1, 1], [], id="all shards are there"),
        pytest.param([[0, 1], [1]], [], 8, [0, 0, 1], [2], id="one is lost"),
        pytest.param([[0], [1, 2]], [10], 10, [], [], id="this number of ranks has a newer step"),
    ],
)
def test_complete_shards_of_another_number_of_ranks_are_divided(
    shards: list[list[int]], own: list[int], step: int, divided: list[int], lost: list[int]
) -> None:
    newer = [keep.StepKey(0, step, 2) for step in own]
    reports = [
        report_with(newer, before=[0, 1], newest=shards[0]),
        report_with(newer, before=[2], newest=shards[1]),
    ]
    agreed = agreement.agree_on_step(reports)
    assert (agreed.key.step, agreed.shard_holders) == (step, divided)
    assert agreed.lost_shards == lost


@pytest.mark.parametrize(
    ("own", "chosen"),
    [pytest.param([5], (5, []), id="this number"), pytest.param([], (9, [0, 0, 0]), id="others")],
)
def test_shards_of_this_number_of_ranks_come_first_among_other_runs(
    own: list[int], chosen: tuple[int, list[int]]
) -> None:
    """However many steps a run with another number of ranks has made."""
    keys = [keep.StepKey(-1, step, 7) for step in own]
    theirs = keep.StepKey(-1, 9, 8)
    agreed = agreement.agree_on_step(
        [
            agreement.RestoreReport(
                FailureDomain("node", "worker"),
                [*keys, theirs],
                keys,
                {},
                is_sharded=True,
                process=keep.StepKey(-1, 0),
                of_other_sizes={ShardPlace(3, rank): [theirs] for rank in range(3)},
            )
        ]
    )
    assert (agreed.key.step, agreed.shard_holders) == chosen


def test_a_rank_without_a_state_of_its_own_is_named(
    worker: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(1, 2, own=b"numbers")
    rename_rank(worker, 0)
    state = train(own=b"new numbers")
    assert (state.step, state.own) == (2, b"new numbers")
    assert "ranks [0] " in capsys.readouterr().err


def test_a_rank_that_is_no_more_is_named(worker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run that continues with fewer ranks. What it has of an earlier step says nothing."""
    train(1, 2, own=b"numbers")
    rename_rank(worker, 0, 0, 1, 2)
    (newest,) = (path for path in worker.glob("one/*-rank-2.*") if keep_step(path) == 2)
    newest.unlink()
    state = train(own=b"new numbers")
    assert (state.step, state.own) == (2, b"numbers")
    assert "ranks [1] " in capsys.readouterr().err


def test_ranks_with_different_states_of_a_step_continue_from_one(
    workers: TwoWorkers, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them was away, and has come back with its own step 5."""

    def make_step_5(rank: int, weights: bytes) -> None:
        monkeypatch.setenv("HVD_FENCE", str(100 + rank))
        state = workers.state(rank, weights=weights)
        state.commit(4)
        state.commit(5)

    make_step_5(0, b"OLD")
    make_step_5(1, b"NEW")
    states = [workers.state(rank, weights=b"???") for rank in (0, 1)]
    assert workers.together(states) == [5, 5]
    assert [bytes(state.weights) for state in states] == [b"NEW", b"NEW"]
    assert " step 5 " in capfd.readouterr().err


def test_ranks_continue_from_a_step_that_one_has_committed_again(
    workers: TwoWorkers,
) -> None:
    """The other one was lost before it could."""
    first = workers.state(0, weights=b"once")
    first.commit(5)
    first.weights = b"more"
    first.commit(5)
    workers.state(1, weights=b"once").commit(5)
    states = [workers.state(rank, weights=b"????") for rank in (0, 1)]
    assert workers.together(states) == [5, 5]
    assert [bytes(state.weights) for state in states] == [b"more", b"more"]


def test_ranks_of_one_launch_keep_what_differs_between_them(workers: TwoWorkers) -> None:
    """As PyTorch's statistics of a batch do, which are a part of the model."""
    workers.state(0, weights=b"one").commit(5)
    workers.state(1, weights=b"two").commit(5)
    states = [workers.state(rank, weights=b"???") for rank in (0, 1)]
    assert workers.together(states) == [5, 5]
    assert [bytes(state.weights) for state in states] == [b"one", b"two"]


def test_ranks_begin_with_the_weights_of_rank_0(workers: TwoWorkers) -> None:
    states = [workers.state(rank, weights=b"made by %d" % rank) for rank in (0, 1)]
    assert workers.together(states) == [0, 0]
    assert [bytes(state.weights) for state in states] == [b"made by 0", b"made by 0"]


def test_the_own_state_of_a_rank_follows_it_to_another_worker(workers: TwoWorkers) -> None:
    """Worker 0 is lost: rank 0 runs where rank 1 was, and rank 1 on a spare."""
    workers.state(1, weights=b"w", own=b"numbers of rank 1").commit(5)
    workers.places = [1, 2]
    states = [workers.state(rank, weights=b"?", own=b"made") for rank in (0, 1)]
    assert workers.together(states) == [5, 5]
    assert [bytes(state.own) for state in states] == [b"made", b"numbers of rank 1"]
    assert {bytes(state.weights) for state in states} == {b"w"}


@pytest.mark.parametrize(("attempt", "is_said"), [("1", False), ("2", True)])
def test_a_later_attempt_that_begins_anew_says_so(
    worker: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    attempt: str,
    is_said: bool,
) -> None:
    monkeypatch.setenv("HVD_ATTEMPT", attempt)
    resume()
    assert ("attempt 2 begins at step 0" in capsys.readouterr().err) is is_said


def test_a_damaged_shard_of_another_number_of_ranks_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All ranks go on with the checkpoint before, which has none."""
    found = agreement.ReadableStates(
        {}, {}, {}, "", of_other_sizes={ShardPlace(2, rank): {} for rank in (0, 1)}
    )

    def put(rank: int, key: keep.StepKey, *, damage: int = 0) -> None:
        path = tmp_path / f"{rank}-{key.step}"
        raw = keep.pack(key, b"shard")
        raw[-1] ^= damage
        path.write_bytes(raw)
        read = packed_state.read_file(path, is_checked=False)
        found.of_other_sizes[ShardPlace(2, rank)][key] = found.shared[key] = read

    put(0, BEFORE)
    put(1, BEFORE)
    put(0, NEWEST, damage=1)
    put(1, NEWEST, damage=1)

    def report() -> agreement.RestoreReport:
        sizes = {place: [*packed_states] for place, packed_states in found.of_other_sizes.items()}
        domain = FailureDomain("node", "worker")
        begin = keep.StepKey(-1, 0)
        return agreement.RestoreReport(
            domain, [*found.shared], [], {}, is_sharded=True, process=begin, of_other_sizes=sizes
        )

    _, agreed = agreement.agree_on_readable_step(ranks.Ranks(), found, report)
    assert (agreed.key, agreed.shard_holders) == (BEFORE, [0, 0])
    assert "1-9 is damaged: " in capsys.readouterr().err
