"""How messages and the record name hosts: as ranges."""

from __future__ import annotations

import json
from itertools import groupby, islice
from typing import Collection, Iterable, Mapping, Sequence

from hvd_pods.common.ranges import format_ranges
from hvd_pods.common.rank_variables import list_pods
from hvd_pods.common.run import Host, Run

# What a report shows at most: groups of hosts, characters of a reason, ranges of hosts in a group.
MOST_GROUPS = 8
LONGEST_REASON = 300
MOST_RANGES = 8


def describe(reasons: Mapping[Host, str]) -> list[str]:
    """One line for all hosts that are missing for the same reason, not longer than a person reads.

    A last line counts the hosts with further reasons. The kubelet keeps 4096 bytes of a termination
    message, whose beginning it cuts off.
    """
    hosts: dict[str, list[Host]] = {}
    for host, reason in reasons.items():
        hosts.setdefault(reason, []).append(host)
    lines = [
        f"{format_hosts(same)}: {reason[:LONGEST_REASON]}"
        for reason, same in list(hosts.items())[:MOST_GROUPS]
    ]
    others = sum(len(same) for same in list(hosts.values())[MOST_GROUPS:])
    return [*lines, f"and {others} more, for other reasons"] if others else lines


def describe_loss(lost: Mapping[Host, str]) -> str:
    """Name the hosts that are lost, and what attempts to reach them met."""
    return "; ".join(f"lost {line}" for line in describe(lost))


def describe_spares(run: Run, idle: int) -> str:
    """Say how many of the run's spares answer and are idle; empty for a run without spares."""
    number = sum(run.initial_workers.values()) - sum(run.needed_workers.values())
    return f", and {idle} of {number} spares" if number else ""


def record_hosts(run: Run, chosen: Collection[str]) -> str:
    """Return the ordinals of the hosts to use as JSON, by StatefulSet.

    Empty where these are always the same, without spares and a minimum.
    """
    if run.initial_workers == run.needed_workers and not run.is_adaptive:
        return ""
    used = (host for host in run.hosts if host.name in chosen)
    groups = groupby(used, key=lambda host: host.stateful_set)
    return json.dumps({name: ",".join(format_ordinals(same)) for name, same in groups})


def read_hosts(run: Run, record: str) -> list[Host]:
    """The hosts of `record_hosts`; those that the run starts with for any other text."""
    try:
        groups = [f"{name}:{text}" for name, text in json.loads(record).items()]
        names = set(islice(list_pods(" ".join(groups)), len(run.hosts) + 1))
    except (ValueError, TypeError, AttributeError, RecursionError):
        names = set()
    return [host for host in run.hosts if host.name in names] or [
        host for host in run.hosts if not host.optional
    ]


def format_hosts(hosts: Sequence[Host]) -> str:
    """Name hosts as ranges: `hvd-worker-[0-31,40]`, with their number if it is not obvious."""
    parts = []
    for name, same in groupby(hosts, key=lambda host: host.stateful_set):
        ordinals = format_ordinals(same)
        shown = ",".join(ordinals[:MOST_RANGES])
        shown += ",..." if len(ordinals) > MOST_RANGES else ""
        parts.append(f"{name}-{shown}" if shown.isdecimal() else f"{name}-[{shown}]")
    more = " and other groups" if len(parts) > MOST_RANGES else ""
    number = f" ({len(hosts)} workers)" if len(hosts) > 1 else ""
    return ", ".join(parts[:MOST_RANGES]) + more + number


def format_ordinals(hosts: Iterable[Host]) -> list[str]:
    """Return the ordinals of a StatefulSet's hosts as ranges: `0-31` and `40`."""
    return format_ranges(int(host.name.rpartition("-")[2]) for host in hosts)


def find_host(rank: int, hosts: Sequence[Host]) -> Host | None:
    """Find the host of a rank, None for a rank that they have no slot for.

    Launchers fill hosts in their order.
    """
    first = 0
    for host in hosts:
        first += host.slots
        if rank < first:
            return host
    return None
