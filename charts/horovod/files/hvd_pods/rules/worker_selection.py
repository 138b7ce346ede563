"""Rules of the choice: which of the workers that answer an attempt uses, and how many it lacks."""

from __future__ import annotations

from collections import Counter
from typing import Collection, Mapping

from hvd_pods.shared.run import Pod, Run, Worker


def has_least(run: Run, answering: Collection[str]) -> bool:
    """Return whether these workers are enough for a run, although others may be missing."""
    return not count_lacking(run.least_workers, run, answering)


def count_missing_workers(run: Run, answering: Collection[str]) -> dict[str, int]:
    """Count the workers that groups still need, by the name of their StatefulSet.

    Groups that need none are left out.
    """
    return count_lacking(run.needed_workers, run, answering)


def count_lacking(
    needed: Mapping[str, int], run: Run, answering: Collection[str]
) -> dict[str, int]:
    """Count the workers that groups lack of those that are needed, by their StatefulSet."""
    present = Counter(worker.stateful_set for worker in run.workers if worker.name in answering)
    lacking = {name: number - present[name] for name, number in needed.items()}
    return {name: number for name, number in lacking.items() if number > 0}


def choose_workers(
    run: Run, answering: Mapping[str, Pod], broken: Collection[Pod] = ()
) -> dict[str, Pod]:
    """Return the workers to use: the first of each group in the run's order, broken ones last.

    This order keeps ranks on their workers as long as the workers answer.
    """
    missing = dict(run.needed_workers)
    chosen = {}
    for worker in sorted(run.workers, key=lambda worker: answering.get(worker.name) in broken):
        if worker.name in answering and missing[worker.stateful_set]:
            missing[worker.stateful_set] -= 1
            chosen[worker.name] = answering[worker.name]
    return chosen


def find_missing(run: Run, answering: Collection[str]) -> list[Worker]:
    """Return the workers that do not answer, of groups that need more; spares are among them."""
    lacking = count_missing_workers(run, answering)
    return [
        worker
        for worker in run.workers
        if worker.name not in answering and worker.stateful_set in lacking
    ]
