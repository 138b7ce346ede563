"""A sharded state: where the shards are, and what is left of it after a loss."""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.library import keep
from hvd_pods.library.keep import shard_parts as shards
from hvd_pods.library.keep.shard_copies import FailureDomain, place_copies
from hvd_pods.worker import save_states
from tests.support.fakes.jax import Array, jax
from tests.unit.hvd_pods.library.keep.shard_ranks import Cluster, ZeroRedundancyOptimizer, cluster


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[Cluster]:
    """Three workers with a rank each, whose training has made three steps."""
    with cluster(tmp_path, [0, 1, 2]) as made:
        assert not made.train(3).problems
        yield made


def steps_of(cluster: Cluster, **given: Any) -> list[int]:
    """Where the ranks of another attempt go on."""
    attempt = cluster.train(1, **given)
    assert not attempt.problems
    return [attempt.restored[rank].step for rank in range(len(cluster.places))]


@pytest.mark.parametrize(
    ("places", "holders"),
    [
        pytest.param("a1", [None], id="alone"),
        pytest.param("a1 a1", [None, None], id="one worker"),
        pytest.param("a1 b2", [1, 0], id="two workers"),
        pytest.param("a1 b2 c3", [1, 2, 0], id="a ring"),
        pytest.param("a1 a2 a3", [1, 2, 0], id="one node"),
        pytest.param("a1 a2 b3 b4", [2, 2, 0, 0], id="never on the same node"),
        pytest.param("a1 a1 b2 b2", [2, 3, 0, 1], id="two ranks a worker"),
        pytest.param("a1 b2 b2", [1, 0, 0], id="more ranks on one worker"),
        pytest.param("a1 b2 a1 b2", [1, 0, 3, 2], id="ranks in turn"),
    ],
)
def test_copies_are_with_other_workers(places: str, holders: list[int | None]) -> None:
    """A place is a letter for its node, and a number for its worker."""
    assert place_copies([FailureDomain(place[0], place[1]) for place in places.split()]) == holders


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_loss_of_a_worker_costs_no_step(trained: Cluster, lost: int) -> None:
    trained.lose(lost)
    attempt = trained.train(0)
    restored = [attempt.restored[rank] for rank in range(3)]
    assert [rank.step for rank in restored] == [3, 3, 3]
    shards = [trained.shard(rank, [1, 1, 1]) for rank in range(3)]
    assert [rank.shard for rank in restored] == shards


def test_each_worker_may_be_lost_after_the_other(trained: Cluster) -> None:
    """Each time, what was lost is copied again before a step is made."""

    def lose(worker: int) -> list[RuntimeError]:
        trained.lose(worker)
        return trained.train(0).problems

    assert [lose(worker) for worker in (0, 1, 2, 1, 0)] == [[]] * 5
    assert steps_of(trained) == [3, 3, 3]


# A commit has three words: the twelfth is that rank 0 takes a copy of step 3.
@pytest.mark.parametrize("words", range(8))
def test_a_worker_may_be_lost_while_an_interrupted_step_is_restored(
    tmp_path: Path, words: int
) -> None:
    """Worker 1 has the only shard of rank 0 of step 3: step 2 stays until there is another."""
    with cluster(tmp_path, [0, 1]) as trained:
        attempt = trained.train(3, {0: 12})
        assert attempt.done == [1, 1]
        trained.tear(0, 2)
        trained.train(0, {0: words})
        trained.lose(1)
        assert min(steps_of(trained)) >= 2


def test_two_workers_at_once_cost_the_state(
    trained: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    trained.lose(0)
    trained.lose(1)
    assert steps_of(trained) == [0, 0, 0]
    assert "step 3 " in capfd.readouterr().err


def test_two_workers_at_once_cost_the_steps_since_the_checkpoint(
    tmp_path: Path, trained: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    trained.minutes = 0.0
    # A commit tells that the next one is written; it may still be written when the third is made.
    assert steps_of(trained, output=tmp_path / "output") == [3, 3, 3]
    trained.train(1, output=tmp_path / "output")
    trained.lose(0)
    trained.lose(1)
    trained.lose(2)
    attempt = trained.train(0, output=tmp_path / "output")
    steps = {restored.step for restored in attempt.restored.values()}
    assert steps in ({4}, {5})
    assert "keep-main-rank-0-of-3" in capfd.readouterr().err


def test_a_shard_of_another_number_of_ranks_is_not_used(
    tmp_path: Path, trained: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    trained.minutes = 0.0
    trained.train(3, output=tmp_path / "output")
    trained.places = [0, 1]
    assert steps_of(trained, output=tmp_path / "output") == [0, 0]
    log = capfd.readouterr().err
    assert re.search("rank 0 of 3.* rank 0 of 2", log)
    assert "rank-0-of-3.a.state'" in log


def test_shards_that_cannot_be_divided_fit_one_number_of_ranks(trained: Cluster) -> None:
    assert not save_states.fits_any_number(trained.worker(0) / "one")


@pytest.mark.parametrize(
    ("placement", "is_divided"),
    [("Shard(dim=0)", True), ("_StridedShard(dim=0, sf=2)", False)],
)
def test_weights_in_strided_shards_are_not_divided_anew(placement: str, is_divided: bool) -> None:
    tensor = {"shape": [8], "placements": [placement], "mesh": [2], "at": [0]}
    whole, same = shards.form_of_shard({}, {"weights": {shards.LOCAL: [], **tensor}})
    assert bool(whole) == is_divided
    assert same


def test_training_continues_where_the_memory_of_one_worker_is_full(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All ranks give up then: what one of them lacks is no use to the others."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, before)
        # Rank 1 has a larger shard.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
        trained = stack.enter_context(cluster(tmp_path, [0, 1, 2]))
        assert not trained.train(3).problems
        assert steps_of(trained) == [0, 0, 0]
    log = capfd.readouterr().err
    assert log.count("in memory") == 3
    assert "another rank" in log


def test_a_shard_of_another_model_is_not_used(
    trained: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    more = [{"params": [0, 1], "lr": 0.1}]
    state_dict = {"state": {}, "param_groups": more}
    make = ZeroRedundancyOptimizer.__init__

    def make_other(part: Any, shard: bytes) -> None:
        make(part, shard)
        monkeypatch.setattr(part.optim, "state_dict", lambda: dict(state_dict))

    monkeypatch.setattr(ZeroRedundancyOptimizer, "__init__", make_other)
    attempt = trained.train(0)
    assert {restored.step for restored in attempt.restored.values()} == {0}
    assert re.search(r"main-rank-1\.b .*\['part'\]", capfd.readouterr().err)


def test_a_learning_rate_that_was_changed_after_the_step_is_kept() -> None:
    part = ZeroRedundancyOptimizer(b"")
    part.param_groups[0]["lr"] = 0.05
    kept = shards.read_shard(part)
    new = ZeroRedundancyOptimizer(b"")
    shards.write_shard(new, kept)
    assert (new.param_groups[0]["lr"], new.optim.param_groups[0]["lr"]) == (0.05, 0.05)


@pytest.mark.parametrize("kind", ["ZeROOptimizer", "DeepSpeedZeroOptimizer"])
def test_shards_that_are_not_kept_are_refused_by_name(worker: Path, kind: str) -> None:
    part = type(kind, (), {})()
    with pytest.raises(ValueError, match=rf"part is sharded \({kind}\)"):
        keep.State(part=part)


def test_variables_of_keras_that_are_sharded_are_refused_by_name(
    worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array: Any = Array(1)
    array.is_fully_addressable = False
    monkeypatch.setitem(sys.modules, "jax", jax())
    variable = SimpleNamespace(assign=None, shape=(), value=array)
    model = type("Model", (), {"variables": [variable]})()
    with pytest.raises(ValueError, match=r"model is sharded \(keras\.distribution\)"):
        keep.State(model=model)
    array.is_fully_replicated = True
    keep.State(model=model)
