"""The number of workers and slots that a launcher's line or a header of Slurm requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hvd_pods.shared.untrusted import parse_count
from hvdchart.quantity import pluralize
from hvdchart.text import join_names

# The largest accepted number of ranks, slots and nodes.
_MAX_COUNT = 10**7 - 1
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
    """The ranks and hosts of a line or a header; None for what it does not give.

    `ranks` is the number of ranks, and `per_host` that of each of `nodes`. `host_file` and
    `discovery` are the file and the script that list the hosts. An elastic run has between
    `min_ranks` and `max_ranks` ranks, and at least `min_workers` workers.
    """

    ranks: int | None = None
    per_host: int | None = None
    nodes: int | None = None
    hosts: tuple[Host, ...] | None = None
    host_file: str | None = None
    discovery: str | None = None
    min_ranks: int | None = None
    max_ranks: int | None = None
    min_workers: int | None = None

    @property
    def has_minimum(self) -> bool:
        """Return whether it gives the fewest ranks or workers."""
        return bool(self.min_ranks or self.min_workers)

    @property
    def slurm_variables(self) -> dict[str, str]:
        """Return the variables that Slurm sets for the size of a header."""
        tasks = self.ranks or (self.per_host and (self.nodes or 1) * self.per_host)
        numbers = {
            "SLURM_NTASKS": tasks,
            "SLURM_NPROCS": tasks,
            "SLURM_NNODES": self.nodes,
            "SLURM_JOB_NUM_NODES": self.nodes,
            "SLURM_NTASKS_PER_NODE": self.per_host,
        }
        return {name: str(number) for name, number in numbers.items() if number}

    def set_size(self, field: str, value: Any) -> LineSize:
        """Return the size with another field. Raises NotUnderstoodError for a second value."""
        mine = getattr(self, field)
        if mine is not None and mine != value:
            problem = f"two options of the line set {field.replace('_', ' ')} differently"
            raise NotUnderstoodError(problem, "one of them")
        return replace(self, **{field: value})

    def replace_with(self, line: LineSize) -> LineSize:
        """Return the size of a header with what a line of srun gives in its place."""
        given = {name: value for name, value in vars(line).items() if value is not None}
        return replace(self, **given)

    def fill_from_slurm(self, header: LineSize) -> LineSize:
        """Return the size of a launcher's line; fill missing values from a header of Slurm.

        Raises NotUnderstoodError for nodes with different numbers of ranks.
        """
        nodes = header.nodes
        tasks = header.ranks
        size_per_host = self.per_host or header.per_host
        is_given = self.hosts or self.host_file or (self.ranks and self.per_host)
        if is_given or not (nodes or tasks or (size_per_host and self.ranks)):
            return self
        of_nodes = self.per_host and nodes and nodes * self.per_host
        ranks = self.ranks or of_nodes or tasks or (nodes or 1) * (size_per_host or 1)
        count = nodes or max(ranks // (size_per_host or ranks), 1)
        per_host = ranks // count
        # With --ntasks, Slurm uses --ntasks-per-node as the maximum.
        fewest = size_per_host if size_per_host and nodes and not tasks else 1
        if ranks % count or not fewest <= per_host <= (size_per_host or per_host):
            problem = f"{ranks} ranks on {count} nodes of Slurm"
            raise NotUnderstoodError(problem, "as many ranks on each node as tasks")
        return replace(self, ranks=ranks, per_host=per_host if nodes or size_per_host else None)


def read_count(option: str, text: str) -> int:
    """Return the number in an option. Raises NotUnderstoodError for any other text."""
    number = parse_count(text, _MAX_COUNT)
    if not number:
        raise NotUnderstoodError(f"{option} is {text}, and no whole number from 1 on")
    return number


def read_hosts(option: str, text: str) -> tuple[Host, ...]:
    """Return the hosts in a list such as a:8,b:8. Raises NotUnderstoodError."""
    hosts = []
    for entry in filter(None, text.split(",")):
        name, colon, slots = entry.strip().partition(":")
        if not name or (colon and not parse_count(slots, _MAX_COUNT)):
            raise NotUnderstoodError(f"{entry} of {option} has no number of slots")
        hosts.append(Host(name, parse_count(slots, _MAX_COUNT)))
    if len({host.name for host in hosts}) < len(hosts):
        raise NotUnderstoodError(f"{option} {text} gives a host twice")
    return tuple(hosts)


def workers_and_slots(size: LineSize) -> tuple[int, int, str]:
    """Return workers, slots and a check. Raises NotUnderstoodError for hosts that differ."""
    if size.hosts:
        return _count_on_hosts(size, size.hosts)
    ranks = size.ranks or size.min_ranks
    per_host = size.per_host
    if not (ranks and per_host) and (size.host_file or size.discovery):
        source = f"host file {size.host_file}" if size.host_file else f"script {size.discovery}"
        raise NotUnderstoodError(f"only the {source} knows the hosts", f"in its place {_HOSTS}")
    if not ranks and not per_host:
        problem = "the line does not say how many ranks it starts"
        raise NotUnderstoodError(problem, f"-np N, or {_HOSTS}")
    if ranks and per_host and ranks % min(ranks, per_host):
        problem = f"{ranks} ranks do not fill hosts of {per_host} slots"
        raise NotUnderstoodError(problem, "a multiple")
    if ranks and per_host:
        return -(-ranks // per_host), min(ranks, per_host), ""
    slots = ranks or per_host or 1
    check = (
        f"the line names no hosts: one worker has {pluralize(slots, 'slot')}; for more nodes "
        "change worker.number and worker.slots"
    )
    return 1, slots, check


def _count_on_hosts(size: LineSize, hosts: Sequence[Host]) -> tuple[int, int, str]:
    count = len(hosts)
    numbers = {size.per_host or host.slots for host in hosts}
    if len(numbers) > 1:
        expected = "one number for all hosts, or workerGroups by hand"
        raise NotUnderstoodError("the hosts have different numbers of slots", expected)
    slots = numbers.pop() or (size.ranks or count) // count
    ranks = size.ranks or count * slots
    if ranks != count * slots and not (count == 1 and ranks < slots):
        problem = f"{ranks} ranks on {count} hosts of {slots} slots"
        raise NotUnderstoodError(problem, "a rank for each slot of each host")
    if {host.name for host in hosts} <= {"localhost", "127.0.0.1"}:
        check = "the ranks ran on one machine: for more nodes change worker.number and worker.slots"
    else:
        names = join_names(host.name for host in hosts)
        check = f"the hosts {names} become pods on any nodes: for these set worker.nodeSelector"
    return count, ranks // count, check
