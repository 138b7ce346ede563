"""What keep keeps in the memory of a worker; tests/images has the frameworks."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_pods.library import keep
from tests.unit.hvd_pods.library.keep.scripts import resume, train


@pytest.fixture
def full(worker: Path) -> Iterator[None]:
    """No file may be larger than this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_training_begins_with_what_the_script_has_made(worker: Path) -> None:
    assert resume() == (0, b"made")


@pytest.mark.promise("a new process continues after the last commit")
def test_a_new_process_continues_after_the_last_commit(worker: Path) -> None:
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
@pytest.mark.promise("another run never continues from it")
def test_another_run_never_continues_from_it(
    worker: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    train(1, 2, 3)
    monkeypatch.setenv("HVD_RUN_ID", run)
    assert resume() == (0, b"made")
    assert (worker / "one").exists() == (not run), "a later run removes it"


def test_the_state_of_another_script_is_named_and_not_used(
    worker: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(1, 2)
    assert keep.State(weights=b"made", more=1).restore() == 0
    assert "['weights', 'losses'], this script ['weights', 'more']" in capsys.readouterr().err


def test_training_continues_where_memory_is_full(
    full: None, capsys: pytest.CaptureFixture[str]
) -> None:
    state = train(weights=bytes(1 << 20))
    state.weights = bytes(3 << 20)
    state.commit()
    state.commit()
    state.commit()
    assert state.step == 3
    log = capsys.readouterr().err
    assert log.count("in memory") == 1
    assert " 6 MiB" in log
