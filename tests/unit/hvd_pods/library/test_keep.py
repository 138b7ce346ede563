"""What keep.py keeps of a training, for a rank that is alone; tests/images has the frameworks."""

from __future__ import annotations

import copy
import os
import resource
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.library import keep
from tests.fakes.faults import TIMEOUT
from tests.waiting import wait_until


def train(*steps: int, weights: bytes = b"made", **more: Any) -> Any:
    """A script that makes these steps from where it goes on; its weights are the last one's."""
    state: Any = keep.State(weights=weights, losses=[0.5, None, ("a", 1)], **more)
    state.restore()
    for step in steps:
        state.weights = b"after step %02d" % step
        state.commit(step)
    return state


def resume(**more: Any) -> tuple[int, bytes]:
    """Where a new process goes on."""
    state = train(**more)
    return state.step, bytes(state.weights)


def test_a_training_begins_with_what_the_script_has_made(worker: Path) -> None:
    assert resume() == (0, b"made")


def test_a_new_process_goes_on_after_the_last_commit(worker: Path) -> None:
    train(1, 2, 3)
    state = train()
    assert (state.step, bytes(state.weights)) == (3, b"after step 03")
    assert state.losses == [0.5, None, ("a", 1)]


def test_a_commit_without_a_number_counts_the_steps(worker: Path) -> None:
    train(1, 2, 3).commit()
    assert resume()[0] == 4


def test_a_commit_takes_the_place_of_an_older_one(worker: Path) -> None:
    train(1, 2)
    files = set(worker.glob("one/*"))
    train(3, 4)
    assert set(worker.glob("one/*")) == files


def test_memory_is_for_the_pods_user_alone(worker: Path) -> None:
    train(1, 2)
    assert {path.stat().st_mode & 0o777 for path in worker.glob("one/*")} == {0o600}
    assert (worker / "one").stat().st_mode & 0o777 == 0o700


def test_a_damaged_commit_costs_one_step(worker: Path) -> None:
    """One that was interrupted as well: tests/images/keep_ranks.py."""
    train(1, 2, 3)
    (newest,) = (path for path in worker.glob("one/*") if b"step 03" in path.read_bytes())
    newest.write_bytes(newest.read_bytes()[:10])
    assert resume() == (2, b"after step 02")
    train(3)
    assert resume() == (3, b"after step 03")


@pytest.mark.parametrize("run", ["two", ""])
def test_another_run_never_goes_on_from_it(
    worker: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    train(1, 2, 3)
    monkeypatch.setenv("HVD_RUN_ID", run)
    assert resume() == (0, b"made")
    assert (worker / "one").exists() == (not run), "a later run removes it"


@pytest.fixture
def checkpoint(worker: Path) -> Path:
    """The checkpoint of a script."""
    return worker.with_name("keep-main.state")


def test_memory_that_is_newer_than_the_checkpoint_counts(worker: Path) -> None:
    train(1, 2).save()
    train(3)
    assert resume()[0] == 3


def test_the_checkpoint_counts_where_all_memory_is_gone(
    worker: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train(1, 2).save()
    monkeypatch.setenv("HVD_RUN_ID", "two")
    capsys.readouterr()
    assert resume() == (2, b"after step 02")
    remedy = "another run has left it: to begin anew, set another OUTPUT_PATH"
    assert remedy in capsys.readouterr().err


def test_a_checkpoint_of_another_run_is_not_newer_whatever_its_step(
    worker: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(1, 2).save()
    other = checkpoint.read_bytes()
    checkpoint.unlink()
    monkeypatch.setenv("HVD_RUN_ID", "two")
    train(1)
    checkpoint.write_bytes(other)
    assert resume()[0] == 1


def test_checkpoints_are_written_beside_the_training(
    worker: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At each commit.
    train(5, minutes=0.0)
    wait_until(
        lambda: checkpoint.exists() and b"step 05" in checkpoint.read_bytes(),
        60,
        "the checkpoint is written",
    )
    monkeypatch.setenv("HVD_RUN_ID", "two")
    assert resume() == (5, b"after step 05")


def test_the_state_of_another_script_is_named_and_not_used(
    worker: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(1, 2)
    assert keep.State(weights=b"made", more=1).restore() == 0
    assert "['weights', 'losses'], this script ['weights', 'more']" in capsys.readouterr().err


def test_a_checkpoint_of_another_script_is_refused(
    worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep.State(weights=b"made", more=1).save()
    monkeypatch.setenv("HVD_RUN_ID", "two")
    with pytest.raises(ValueError, match=r"keep-main.state has the parts .* OUTPUT_PATH"):
        train()


@pytest.fixture
def full(worker: Path) -> Iterator[None]:
    """No file may be larger than this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_training_goes_on_where_memory_is_full(
    full: None, capsys: pytest.CaptureFixture[str]
) -> None:
    state = train(weights=bytes(1 << 20))
    state.weights = bytes(3 << 20)
    for _ in range(3):
        state.commit()
    assert state.step == 3
    told = capsys.readouterr().err
    assert told.count("cannot keep the state in memory") == 1
    assert "two copies need 6 MiB" in told


def test_each_state_needs_a_name_of_its_own(worker: Path) -> None:
    one = train(1)
    with pytest.raises(ValueError, match=r"has a State 'main' already: .*name='critic'"):
        keep.State()
    two = train(7, name="critic")
    assert (one.step, two.step) == (1, 7)
    del one, two
    assert (resume()[0], resume(name="critic")[0]) == (1, 7)


def test_the_name_of_a_state_leads_to_no_other_folder(worker: Path) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        keep.State(name="../a")


def after_nine_steps() -> Any:
    """A state that goes on after the ninth step of a training with epochs of four."""
    state = train(9)
    assert state.epochs(4) == 2
    state.commit(9)
    del state
    return train()


def test_finished_epochs_are_counted(worker: Path) -> None:
    state = after_nine_steps()
    assert (state.epochs(4), state.step) == (2, 9)


def test_an_epoch_with_other_steps_is_begun_again(worker: Path) -> None:
    state = after_nine_steps()
    assert (state.epochs(3), state.step) == (2, 6)


def test_what_was_counted_in_longer_epochs_is_older(worker: Path) -> None:
    state = after_nine_steps()
    state.epochs(3)
    state.commit(7)
    del state
    assert resume()[0] == 7


def test_a_script_may_count_its_steps_anew(worker: Path) -> None:
    train(9)
    train(2)
    assert resume()[0] == 2


def test_a_checkpoint_can_be_written_before_the_training_begins(worker: Path) -> None:
    (worker.parent / "file").touch()
    for folder in (worker.parent / "file", worker.parent / "file" / "in"):
        with pytest.raises(ValueError, match=r"cannot write checkpoints to .*file.*OUTPUT_PATH"):
            train(output=folder)
    train(1, output=worker.parent / "new").save()
    assert (worker.parent / "new" / "keep-main.state").exists()


def answer(steps: list[int], own: list[int] | None = None) -> dict[str, Any]:
    """What a rank has."""
    return {"steps": steps, "own": own or []}


@pytest.mark.parametrize(
    ("answers", "chosen"),
    [
        pytest.param([answer([0]), answer([])], (0, 0), id="a start"),
        pytest.param([answer([0, 4, 5]), answer([4, 5])], (5, 0), id="all have it"),
        pytest.param([answer([0, 4]), answer([4, 5])], (5, 1), id="one was faster"),
        pytest.param([answer([0]), answer([4, 5])], (5, 1), id="rank 0 is new"),
        pytest.param([answer([0, 5], [4, 5]), answer([], [])], (5, 0), id="rank 1 is new"),
        pytest.param(
            [answer([0, 4, 5], [4, 5]), answer([4], [3, 4])], (4, 0), id="own part is missing"
        ),
        pytest.param(
            [answer([0, 499, 500], [499, 500]), answer([99, 100], [99, 100])],
            (500, 0),
            id="a worker that was away",
        ),
        pytest.param(
            [answer([500, 501], [499, 500]), answer([90, 91], [90, 91])],
            (500, 0),
            id="a worker that was away, and an own part is missing",
        ),
    ],
)
def test_ranks_agree_on_the_newest_step(
    answers: list[dict[str, Any]], chosen: tuple[int, int]
) -> None:
    assert keep.choose(answers) == chosen


def test_a_rank_without_a_state_of_its_own_is_named(
    worker: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(1, 2, own=b"numbers")
    for path in worker.glob("one/*-rank-0.*"):
        path.unlink()
    state = train(own=b"new numbers")
    assert (state.step, state.own) == (2, b"new numbers")
    assert "ranks [0] have no random numbers" in capsys.readouterr().err


def test_ranks_that_have_not_found_each_other_are_refused(
    worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="one of 2 ranks"):
        train()


def model(**more: Any) -> Any:
    """As Keras has them; with `apply_gradients` it is an optimizer."""
    return SimpleNamespace(**{"built": False, "variables": (), **more})


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"net": model(trainable_variables=())}, "net has no variables yet"),
        ({"slow": model(apply_gradients=0)}, "slow has no variables yet, and 0 models"),
        (
            {name: model(built=True, trainable_variables=()) for name in ("critic", "actor")}
            | {"slow": model(apply_gradients=0)},
            r"slow has no variables yet, and 2 models .* slow.build\(",
        ),
    ],
)
def test_what_has_no_variables_yet_is_refused(
    worker: Path, parts: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        keep.State(**parts)
    for part in parts.values():
        part.built = True
    assert keep.State(**parts).restore() == 0


def test_a_damaged_checkpoint_ends_no_run_that_has_its_state_in_memory(
    worker: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(1, 2).save()
    checkpoint = worker.with_name("keep-main.state")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"x")
    assert resume()[0] == 2
    assert "keep-main.state is damaged: its checksum is wrong" in capfd.readouterr().err


class TwoRanks(keep.Ranks):
    """One of two ranks, each alone on a worker, that are threads."""

    size = 2

    def __init__(self, rank: int, told: list[Any], barrier: threading.Barrier) -> None:
        self.rank = rank
        self._told = told
        self._barrier = barrier

    def gather(self, told: Any) -> list[Any]:
        self._told[self.rank] = told
        self._barrier.wait(TIMEOUT)
        answers = copy.deepcopy(self._told)
        self._barrier.wait(TIMEOUT)
        return answers

    def send(self, piece: memoryview, root: int) -> None:
        piece[:] = self.gather(bytes(piece))[root]


class Workers:
    """Two workers with a rank each; `places` are their numbers, by rank."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.places = [0, 1]
        self._here = threading.local()
        self._patch = monkeypatch
        monkeypatch.setattr(keep, "find_ranks", lambda: self._here.ranks)

    def state(self, rank: int, **parts: Any) -> Any:
        """The state of a new process with this rank, which acts for itself until `together`."""
        self._here.ranks = keep.Ranks()
        self._here.ranks.rank = rank
        keep.State._all.clear()
        place = self.folder / str(self.places[rank])
        place.mkdir(exist_ok=True)
        self._patch.setenv("HVD_KEEP", str(place))
        return keep.State(**parts)

    def together(self, states: list[Any]) -> list[int]:
        """Let both restore; their steps."""
        told: list[Any] = [None, None]
        barrier = threading.Barrier(2)

        def restore(rank: int) -> int:
            self._here.ranks = TwoRanks(rank, told, barrier)
            return int(states[rank].restore())

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(restore, (0, 1)))


@pytest.fixture
def workers(worker: Path, monkeypatch: pytest.MonkeyPatch) -> Workers:
    monkeypatch.delenv("OUTPUT_PATH")
    return Workers(worker, monkeypatch)


def test_ranks_go_on_with_equal_weights_although_two_have_a_state_of_the_step(
    workers: Workers, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them was away, and has come back with its own step 5 (issue 44)."""
    for rank, weights in enumerate((b"OLD", b"NEW")):
        monkeypatch.setenv("HVD_EPOCH", str(100 + rank))
        state = workers.state(rank, weights=weights)
        state.commit(4)
        state.commit(5)
    states = [workers.state(rank, weights=b"???") for rank in (0, 1)]
    assert workers.together(states) == [5, 5]
    assert [bytes(state.weights) for state in states] == [b"OLD", b"OLD"]
    assert "has step 5 of another launch than rank 0: not used" in capfd.readouterr().err


def test_ranks_of_one_launch_keep_what_differs_between_them(workers: Workers) -> None:
    """As PyTorch's statistics of a batch do, which are a part of the model."""
    for rank, weights in enumerate((b"one", b"two")):
        workers.state(rank, weights=weights).commit(5)
    states = [workers.state(rank, weights=b"???") for rank in (0, 1)]
    assert workers.together(states) == [5, 5]
    assert [bytes(state.weights) for state in states] == [b"one", b"two"]


def test_ranks_begin_with_the_weights_of_rank_0(workers: Workers) -> None:
    states = [workers.state(rank, weights=b"made by %d" % rank) for rank in (0, 1)]
    assert workers.together(states) == [0, 0]
    assert [bytes(state.weights) for state in states] == [b"made by 0", b"made by 0"]


def test_the_own_state_of_a_rank_follows_it_to_another_worker(workers: Workers) -> None:
    """Worker 0 is lost: rank 0 runs where rank 1 was, and rank 1 on a spare (issue 44)."""
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
    text = "no checkpoint has a state of this run: attempt 2 begins at step 0"
    assert (text in capsys.readouterr().err) is is_said


def test_a_writer_that_was_cut_off_spoils_no_checkpoint(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on when its successor has written another one (issue 44)."""
    newer = keep.pack(keep.Key(0, 200), b"new")
    sync = os.fsync

    def cut_off(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        keep.write_atomically(checkpoint, newer)

    monkeypatch.setattr(os, "fsync", cut_off)
    with pytest.raises(FileNotFoundError):
        keep.write_atomically(checkpoint, keep.pack(keep.Key(0, 100), b"x" * 100_000))
    assert keep.read_file(checkpoint).key == keep.Key(0, 200)
    assert [path.name for path in checkpoint.parent.glob(".*")] == []


def test_a_checkpoint_is_not_written_through_a_link(checkpoint: Path) -> None:
    (checkpoint.parent / "precious").write_bytes(b"precious")
    checkpoint.with_name(".keep-main.state.new").symlink_to("precious")
    train(1).save()
    assert (checkpoint.parent / "precious").read_bytes() == b"precious"


def test_a_checkpoint_sets_only_what_callbacks_learn() -> None:
    part = SimpleNamespace(on_epoch_end=None, wait=1, model="own")
    keep._write(part, {"wait": 7, "model": "stranger's", "on_epoch_end": "stranger's"})
    assert (part.wait, part.model, part.on_epoch_end) == (7, "own", None)


@pytest.mark.parametrize("kind", ["(", "O8", "|O8", "V8", "i4,i4", "finfo", "a" * 5000, "1" * 5000])
def test_a_checkpoint_with_an_odd_type_is_refused(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    train(1).save()
    monkeypatch.setenv("HVD_RUN_ID", "two")
    parts = {"parts": {"weights": b"w" * 8, "losses": []}, "steps of epoch": 0, "run": "one"}
    bytes_of = keep._bytes_of
    monkeypatch.setattr(keep, "_bytes_of", lambda value: (kind, *bytes_of(value)[1:]))
    checkpoint.write_bytes(keep.pack(keep.Key(0, 1), parts))
    with pytest.raises(ValueError, match=r"keep-main.state has no state of this module"):
        train()
