"""The numbers of workers and slots, from the hosts and the ranks of a command line."""

from __future__ import annotations

import pytest

from hvdchart.migrate.convert import Migration
from hvdchart.migrate.command_line import read_hosts
from tests.unit.hvdchart.migrate.old_files import migrate_line


def size(migration: Migration) -> tuple[int, int]:
    worker = migration.values["worker"]
    return worker["number"], worker["slots"]


@pytest.mark.parametrize(
    ("line", "number", "slots"),
    [
        ("mpirun -np 16 -H a:8,b:8 t", 2, 8),
        ("mpirun -H a:8,b:8 t", 2, 8),
        ("mpirun -np 16 -H a,b t", 2, 8),
        ("mpirun -H a,a,b,b t", 2, 2),
        ("mpirun -np 8 -H a:8,b:8 t", 1, 8),
        ("mpirun -np 3 -H a:8,b:8 t", 1, 3),
        ("mpirun -np 12 -H a:8,b:8 --map-by node t", 2, 6),
        ("mpirun -np 16 -npernode 4 t", 4, 4),
        ("mpirun -np 16 --map-by ppr:4:node t", 4, 4),
        ("mpirun -np 2 -npernode 4 t", 1, 2),
        ("mpirun -np 2 -npernode 1 t", 2, 1),
        ("mpiexec.hydra -n 16 -ppn 2 -hosts a,b,c,d,e,f,g,h t", 8, 2),
        ("mpirun -np 4 t", 1, 4),
        ("horovodrun -np 4 -H localhost:4 t", 1, 4),
        ("horovodrun -np 8 --slots-per-host 4 --min-np 4 --max-np 16 t", 2, 4),
        ("horovodrun --min-np 4 --slots 2 --host-discovery-script d.sh t", 2, 2),
        ("docker run team/a mpirun -np 2 -H a,b t", 2, 1),
    ],
)
def test_workers_and_slots_are_those_of_the_line(line: str, number: int, slots: int) -> None:
    assert size(migrate_line(line)) == (number, slots)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a:8,b:8", [("a", 8), ("b", 8)]),
        ("a,b", [("a", None), ("b", None)]),
        ("a,a", [("a", 2)]),
        ("a:2,a", [("a", 3)]),
        ("a:2,a:3", [("a", 5)]),
        (" a , ,b:x", [("a", None), ("b", None)]),
        ("a:1234567,b:12345678", [("a", 1234567), ("b", None)]),
    ],
)
def test_hosts_are_read_with_their_slots(text: str, hosts: list[tuple[str, int | None]]) -> None:
    assert read_hosts(text) == hosts


@pytest.mark.parametrize(
    ("line", "check"),
    [
        ("mpirun -H a:8,b:8,c:8 t", "the hosts a, b, c become pods on any nodes: for these nodes "
         "set worker.nodeSelector"),
        ("mpirun -np 8 -H a:8,b:8,c:8,d:8 t", "the hosts a, b, c, ... become pods on any nodes: "
         "for these nodes set worker.nodeSelector. The last 3 of the 4 hosts got no ranks, and "
         "are left out"),
        ("mpirun -H localhost:2 t", "the ranks ran on one machine: for more nodes change "
         "worker.number and worker.slots"),
    ],
)  # fmt: skip
def test_hosts_of_a_line_are_named(line: str, check: str) -> None:
    assert migrate_line(line).checks[0] == check
