"""Which hosts a run uses of those that answer: with spares, there are more than it needs.

A run that is not elastic has a fixed number of hosts in each group. It begins as soon as so many of
a group answer, whichever these are, and leaves the others idle. After a failure the next attempt
chooses again, so that a spare takes the place of a host that is gone without waiting for it.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby
from typing import Collection, Iterable, Mapping

from hvd_pods.common.run import Host, Run
from hvd_pods.master.missing import format_ordinals


def count_missing_workers(run: Run, answering: Collection[Host]) -> dict[str, int]:
    """Count the hosts that groups still need, by the name of their StatefulSet."""
    present = Counter(host.stateful_set for host in answering)
    lacking = {name: number - present[name] for name, number in run.needed_workers.items()}
    return {name: number for name, number in lacking.items() if number > 0}


def choose_hosts(run: Run, answering: Mapping[Host, str]) -> dict[Host, str]:
    """Return the hosts to use and their addresses, in the run's order: the first of each group.

    By that order, ranks stay where they were as long as their hosts answer.
    """
    left = dict(run.needed_workers)
    chosen = {}
    for host in run.hosts:
        if host in answering and left[host.stateful_set]:
            left[host.stateful_set] -= 1
            chosen[host] = answering[host]
    return chosen


def record_hosts(run: Run, chosen: Iterable[Host]) -> str:
    """Return the ordinals of the hosts to use as JSON, by StatefulSet; empty without spares."""
    if run.initial_workers == run.needed_workers:
        return ""
    groups = groupby(chosen, key=lambda host: host.stateful_set)
    return json.dumps({name: ",".join(format_ordinals(same)) for name, same in groups})


def describe_spares(run: Run, idle: int) -> str:
    """Tell how many of the run's spares answer and are idle; empty for a run without spares."""
    number = sum(run.initial_workers.values()) - sum(run.needed_workers.values())
    return f", and {idle} of {number} spares" if number else ""
