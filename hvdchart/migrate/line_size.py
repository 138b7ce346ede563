"""The number of workers and slots that the line of a launcher requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from hvd_pods.shared.untrusted import parse_count
from hvdchart.text import join_names

# The largest accepted number of ranks, slots and nodes.
_MOST = 10**7 - 1
_HOSTS = "hosts with their slots, such as -H a:8,b:8"


class NotUnderstoodError(Exception):
    """A part of a line is not understood; `expected` is what to write instead, if known."""

    def __init__(self, problem: str, expected: str = "") -> None:
        super().__init__(problem)
        self.expected = expected


class Host(NamedTuple):
    """A host in a line; `slots` is None if the line does not give it."""

    name: str
    slots: int | None


@dataclass(frozen=True)
class LineSize:
    """The ranks and hosts of a line; None for what it does not give.

    `ranks` is the number of ranks, and `per_host` that of each host. `host_file` and `discovery`
    are the file and the script that list the hosts. An elastic run has between `min_ranks` and
    `max_ranks` ranks, and at least `min_workers` workers.
    """

    ranks: int | None = None
    per_host: int | None = None
    hosts: tuple[Host, ...] | None = None
    host_file: str | None = None
    discovery: str | None = None
    min_ranks: int | None = None
    max_ranks: int | None = None
    min_workers: int | None = None

    def merged(self, other: LineSize) -> LineSize:
        """Merge two sizes. Raises NotUnderstoodError where they differ."""
        if None not in (self.hosts, other.hosts) and self.hosts != other.hosts:
            raise NotUnderstoodError("two options name different hosts: name all in one -H")
        pairs = {
            field.name: (getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
        }
        for mine, others in pairs.values():
            if None not in (mine, others) and mine != others:
                raise NotUnderstoodError(
                    f"two options of the line differ: one says {mine}, one {others}"
                )
        return LineSize(
            **{name: others if mine is None else mine for name, (mine, others) in pairs.items()}
        )


def read_count(option: str, text: str) -> int:
    """Return the number in an option. Raises NotUnderstoodError for any other text."""
    number = parse_count(text, _MOST)
    if not number:
        raise NotUnderstoodError(f"{option} is {text}, and no whole number from 1 on")
    return number


def read_hosts(option: str, text: str) -> tuple[Host, ...]:
    """Return the hosts in a list such as a:8,b:8. Raises NotUnderstoodError."""
    hosts = []
    for entry in filter(None, text.split(",")):
        name, colon, slots = entry.strip().partition(":")
        if not name or (colon and not parse_count(slots, _MOST)):
            raise NotUnderstoodError(f"{entry} of {option} has no number of slots")
        hosts.append(Host(name, parse_count(slots, _MOST)))
    if len({host.name for host in hosts}) < len(hosts):
        raise NotUnderstoodError(f"{option} {text} gives a host twice")
    return tuple(hosts)


def workers_and_slots(size: LineSize, *, by_node: bool) -> tuple[int, int, str]:
    """Return workers, slots and a check; `by_node`: the launcher assigns ranks to hosts in turn.

    Raises NotUnderstoodError.
    """
    if size.hosts:
        return _from_hosts(size, size.hosts, by_node=by_node)
    return _without_hosts(size)


def _from_hosts(size: LineSize, hosts: Sequence[Host], *, by_node: bool) -> tuple[int, int, str]:
    count = len(hosts)
    ranks = size.ranks
    names = join_names(host.name for host in hosts)
    check = f"the hosts {names} become pods on any nodes: for these nodes set worker.nodeSelector"
    if {host.name for host in hosts} <= {"localhost", "127.0.0.1"}:
        check = "the ranks ran on one machine: for more nodes change worker.number and worker.slots"
    given = {size.per_host or host.slots for host in hosts}
    if given == {None} and ranks and ranks % count == 0:
        return count, ranks // count, check
    each = {1 if slots is None else slots for slots in given}
    if len(each) > 1:
        problem = f"the hosts have {' and '.join(str(n) for n in sorted(each))} slots"
        raise NotUnderstoodError(problem, "one number for all hosts, or workerGroups by hand")
    (slots,) = each
    ranks = count * slots if ranks is None else ranks
    if ranks > count * slots:
        problem = f"{ranks} ranks on {count} hosts of {slots} slots"
        raise NotUnderstoodError(problem, "one rank per slot")
    if ranks < count * slots and (by_node or ranks % min(ranks, slots)):
        problem = f"{ranks} ranks fill {count} hosts of {slots} slots unevenly"
        raise NotUnderstoodError(problem, "as many ranks on each host, and as many slots")
    used = -(-ranks // slots)
    if used < count:
        check += f". The last {count - used} of the {count} hosts got no ranks, and are left out"
    return used, min(ranks, slots), check


def _without_hosts(size: LineSize) -> tuple[int, int, str]:
    ranks = size.ranks or size.min_ranks
    per_host = size.per_host
    if ranks and per_host:
        if ranks % min(ranks, per_host):
            problem = f"{ranks} ranks do not fill hosts of {per_host} slots"
            raise NotUnderstoodError(problem, "a multiple")
        return -(-ranks // per_host), min(ranks, per_host), ""
    if size.host_file or size.discovery:
        where = f"host file {size.host_file}" if size.host_file else f"script {size.discovery}"
        raise NotUnderstoodError(f"only the {where} knows the hosts", f"in its place {_HOSTS}")
    if not ranks and not per_host:
        problem = "the line does not say how many ranks it starts"
        raise NotUnderstoodError(problem, f"-np N, or {_HOSTS}")
    if ranks:
        return (
            1,
            ranks,
            f"the line names no hosts: one worker has all {ranks} slots; for more nodes change "
            "worker.number and worker.slots",
        )
    return 1, per_host or 1, "the line names no hosts: set worker.number"
