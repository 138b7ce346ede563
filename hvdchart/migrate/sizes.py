"""Workers and slots of a typed command line: from its hosts, ranks and ranks per host. Pure."""

from __future__ import annotations

from hvdchart.migrate.line import CommandLine

_HOSTS = "hosts with their slots, such as -H a:8,b:8"


class SizeError(Exception):
    """The line does not say how many workers and slots it has: the problem, what is expected."""


def workers_and_slots(line: CommandLine) -> tuple[int, int, str]:
    """The numbers of workers and of slots, and what to check; raises SizeError."""
    if line.unknown:
        raise SizeError(f"only a shell knows {line.unknown}", "its value, set above the line")
    return _from_hosts(line, line.hosts) if line.hosts else _without_hosts(line)


def _from_hosts(line: CommandLine, hosts: list[tuple[str, int | None]]) -> tuple[int, int, str]:
    count, ranks = len(hosts), line.ranks
    names = ", ".join(name for name, _ in hosts[:3])
    check = f"the hosts {names}{', ...' if count > 3 else ''} become pods on any nodes: for these "
    check += "nodes set worker.nodeSelector"
    if {name for name, _ in hosts} <= {"localhost", "127.0.0.1"}:
        check = "the ranks ran on one machine: for more nodes change worker.number and worker.slots"
    given = {line.per_host or slots for _, slots in hosts}
    if given == {None} and ranks and ranks % count == 0 and ranks > count:
        return count, ranks // count, check
    each = {1 if slots is None else slots for slots in given}
    if len(each) > 1:
        problem = f"the hosts have {' and '.join(str(n) for n in sorted(each))} slots"
        raise SizeError(problem, "one number for all hosts, or workerGroups written by hand")
    (slots,) = each
    if slots == 0 or ranks == 0:
        raise SizeError("a host with 0 slots, or 0 ranks", "at least one")
    ranks = count * slots if ranks is None else ranks
    by_node = any(option in ("node", "--bynode", "-bynode") for option in line.options)
    if ranks > count * slots:
        raise SizeError(f"{ranks} ranks on {count} hosts of {slots} slots", "at most one a slot")
    if ranks == count * slots:
        return count, slots, check
    if by_node and ranks % count == 0:
        return count, ranks // count, check
    if not by_node and (ranks % slots == 0 or ranks < slots):
        unused = count - -(-ranks // slots)
        if unused:
            check += f". The last {unused} of the {count} hosts got no ranks, and are left out"
        return -(-ranks // slots), min(ranks, slots), check
    raise SizeError(f"{ranks} ranks fill {count} hosts of {slots} slots unevenly",
                    "as many ranks on each host")  # fmt: skip


def _without_hosts(line: CommandLine) -> tuple[int, int, str]:
    per_host = line.per_host
    ranks = line.ranks or line.min_ranks
    if per_host == 0 or ranks == 0:
        raise SizeError("0 ranks", "at least one")
    if ranks and per_host:
        if ranks % per_host == 0:
            return ranks // per_host, per_host, ""
        if ranks < per_host:
            return 1, ranks, ""
        raise SizeError(f"{ranks} ranks do not fill hosts of {per_host}", "a multiple")
    if line.host_file or line.discovery:
        where = f"host file {line.host_file}" if line.host_file else f"script {line.discovery}"
        raise SizeError(f"only the {where} knows the hosts", f"in its place {_HOSTS}")
    if ranks:
        return 1, ranks, (
            f"the line names no hosts, so its {ranks} ranks ran on one: one worker of {ranks} "
            "slots; for more nodes change worker.number and worker.slots"
        )  # fmt: skip
    if per_host:
        return 1, per_host, "the line names no hosts: set worker.number"
    raise SizeError("the line does not say how many ranks it starts", f"-np N, or {_HOSTS}")
