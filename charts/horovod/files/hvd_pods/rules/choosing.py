"""Rules of the choice: which of the hosts that answer an attempt uses, and how many it lacks."""

from __future__ import annotations

from collections import Counter
from typing import Collection, Mapping

from hvd_pods.common.run import Host, Pod, Run


def has_least(run: Run, answering: Collection[str]) -> bool:
    """Whether a run can do with these hosts, although others may be missing."""
    return not count_lacking(run.least_workers, run, answering)


def count_missing_workers(run: Run, answering: Collection[str]) -> dict[str, int]:
    """Count the hosts that groups still need, by the name of their StatefulSet.

    Groups that need none are left out.
    """
    return count_lacking(run.needed_workers, run, answering)


def count_lacking(
    needed: Mapping[str, int], run: Run, answering: Collection[str]
) -> dict[str, int]:
    """Count the hosts that groups lack of those that are needed, by their StatefulSet."""
    present = Counter(host.stateful_set for host in run.hosts if host.name in answering)
    lacking = {name: number - present[name] for name, number in needed.items()}
    return {name: number for name, number in lacking.items() if number > 0}


def choose_hosts(
    run: Run, answering: Mapping[str, Pod], broken: Collection[Pod] = ()
) -> dict[str, Pod]:
    """Return the hosts to use: the first of each group in the run's order, broken ones last.

    By that order, ranks stay where they were as long as their hosts answer.
    """
    missing = dict(run.needed_workers)
    chosen = {}
    for host in sorted(run.hosts, key=lambda host: answering.get(host.name) in broken):
        if host.name in answering and missing[host.stateful_set]:
            missing[host.stateful_set] -= 1
            chosen[host.name] = answering[host.name]
    return chosen


def find_missing(run: Run, answering: Collection[str]) -> list[Host]:
    """Return the hosts that do not answer, of groups that need more; spares are among them."""
    lacking = count_missing_workers(run, answering)
    return [
        host for host in run.hosts if host.name not in answering and host.stateful_set in lacking
    ]
