"""Random orders of commits and losses: ranks never go on with shards of different steps."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.unit.hvd_pods.library.keep.shard_ranks import Attempt, Cluster, cluster, whole_steps

pytestmark = pytest.mark.fuzz

# The workers of ranks.
PLACES = ([0, 1], [0, 1, 2], [0, 0, 1, 1], [0, 1, 2, 2])


class Chapter(NamedTuple):
    """One attempt, and what happens after it.

    deaths: by rank, after how many words to the others it is killed. torn: whether the first of
    these is killed while it writes. lost: the workers that are lost then. moves: the ranks go to
    other workers. returns: the worker that was lost first comes back, as it was then.
    """

    steps: int
    deaths: dict[int, int]
    torn: bool
    lost: set[int]
    moves: int
    returns: bool


CHAPTERS = st.builds(
    Chapter,
    st.integers(0, 4),
    st.dictionaries(st.integers(0, 1), st.integers(0, 25), max_size=2),
    st.booleans(),
    st.one_of(st.just(set()), st.sets(st.integers(0, 2), min_size=1, max_size=2)),
    st.integers(0, 2),
    st.booleans(),
)


def check(cluster: Cluster, attempt: Attempt, least: int, complete: list[int]) -> None:
    """What ranks had after restore(): all the same step, and each one its shard."""
    assert len({restored.weights for restored in attempt.restored.values()}) <= 1
    for rank, restored in attempt.restored.items():
        assert restored.step == len(restored.history), "not what was committed"
        assert restored.shard == cluster.shard(rank, restored.history), "another step, or rank"
        assert restored.step >= max([least, *complete]), "a newer step is complete"
        event(f"continues after step {min(restored.step, 3)}")


@given(places=st.sampled_from(PLACES), chapters=st.lists(CHAPTERS, min_size=2, max_size=6))
def test_ranks_continue_with_the_newest_complete_step(
    places: list[int], chapters: list[Chapter]
) -> None:
    done: list[int] = []
    # Workers that were lost since all knew that this step is kept.
    lost: set[int] = set()
    set_aside: list[Path] = []
    # Whether since then a commit was interrupted, and ranks have gone to other workers.
    is_torn = has_moved = False
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), [*places]) as trained:
        for chapter in chapters:
            complete = whole_steps(trained)
            deaths = {rank: after for rank, after in chapter.deaths.items() if rank < len(places)}
            attempt = trained.train(chapter.steps, deaths)
            is_safe = len(lost) < 2 and not (is_torn and has_moved)
            check(trained, attempt, len(done) if is_safe else 0, complete)
            assert deaths or not attempt.problems
            if attempt.done is not None:
                done = attempt.done
                lost.clear()
                is_torn = has_moved = False
            elif not is_safe:
                done = []
            is_torn |= bool(deaths)
            has_moved |= chapter.moves > 0
            if chapter.torn and deaths:
                trained.tear(min(deaths), len(done))
            for worker in sorted(chapter.lost & {*places}):
                set_aside.append(trained.lose(worker))
                lost.add(worker)
            if chapter.returns and set_aside:
                worker = max(places)
                trained.lose(worker)
                lost.add(worker)
                trained.bring_back(worker, set_aside.pop(0))
            trained.places = [(place + chapter.moves) % (max(places) + 1) for place in places]
