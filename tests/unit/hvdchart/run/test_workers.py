"""How many workers and spares of a release are up."""

from __future__ import annotations

from hvdchart.run.release import Release
from hvdchart.run.workers import count_workers
from tests.unit.hvdchart.runs import STATEFUL_SET, WORKERS


def test_a_release_without_spares_counts_none() -> None:
    release = Release("hvd", [], [STATEFUL_SET], WORKERS, [])
    workers = count_workers(release, WORKERS)
    assert (workers.ready, workers.wanted) == (2, 2)
    assert (workers.spares_ready, workers.spares_wanted) == (0, 0)
