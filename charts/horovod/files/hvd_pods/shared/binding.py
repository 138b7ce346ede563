"""Binds ranks to CPUs if their launcher does not bind them: Hydra, and the master itself.

Run as a program in a worker, with a binding, it checks whether all ranks of the worker can be bound
that way: Open MPI, which binds them itself, does not check this.
"""

from __future__ import annotations

import os
import sys
from collections import namedtuple

sys.path.insert(0, os.path.abspath(__file__).rsplit("/", 3)[0])
from hvd_pods.shared import contract, exit_codes, files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence, Set

    # Sockets in order; of each its cores in order; of each its CPUs: hyperthreads of one core.
    Topology = List[List[Set[int]]]

CPUS = "/sys/devices/system/cpu"
# The options by which rank/start.py gets a binding, in the order of its fields.
OPTIONS = ("--bind-to", "--cores-per-rank", "--ranks-per-socket")


class Binding(
    namedtuple("Binding", ["to", "cores_per_rank", "ranks_per_socket"], defaults=["none", 0, 0])
):
    """The binding of a rank: `to` is none, core or socket; a number is 0 if it is not set.

    With `cores_per_rank`, each rank has that many cores of its own, in the order of local ranks.
    With `ranks_per_socket`, that many ranks share each socket.
    """


class BindingError(Exception):
    """The ranks cannot be bound as the values require; the message names the key and the CPUs."""


def read_topology(allowed: set[int], root: str | os.PathLike[str] = CPUS) -> Topology:
    """Return the CPUs in `allowed`, those that this container may use, as sockets and cores.

    Cores are in the order of their first CPU. Raises BindingError for a CPU whose socket and core
    the host does not report below `root`.
    """
    cores: dict[tuple[int, int], set[int]] = {}
    for cpu in allowed:
        folder = os.path.join(root, f"cpu{cpu}", "topology")
        try:
            socket = int(files.read(f"{folder}/physical_package_id"))
            core = int(files.read(f"{folder}/core_id"))
        except (OSError, ValueError) as problem:
            raise BindingError(
                f"`launch.binding.to` is not none, but this host does not report the socket and "
                f"core of CPU {cpu} ({problem}): set `launch.binding.to` to none"
            ) from problem
        cores.setdefault((socket, core), set()).add(cpu)
    sockets: dict[int, list[set[int]]] = {}
    for (socket, _), cpus in cores.items():
        sockets.setdefault(socket, []).append(cpus)
    return [sorted(sockets[socket], key=min) for socket in sorted(sockets)]


def select_cpus(binding: Binding, topology: Topology, local_rank: int) -> set[int]:
    """Return the CPUs of one of a worker's ranks, for a binding to cores or sockets.

    Raises BindingError when there are not enough sockets or cores for it.
    """
    if binding.to == "core" and not binding.ranks_per_socket:
        return _take_cores([core for socket in topology for core in socket], binding, local_rank)
    socket, place = divmod(local_rank, binding.ranks_per_socket)
    if socket >= len(topology):
        raise BindingError(
            f"`launch.binding.ranksPerSocket` is {binding.ranks_per_socket}, so local rank "
            f"{local_rank} needs {socket + 1} sockets, but the CPUs of this container are on "
            f"{len(topology)}: raise it, or lower `worker.slots`"
        )
    if binding.to == "socket":
        return set().union(*topology[socket])
    return _take_cores(topology[socket], binding, place)


def _take_cores(cores: list[set[int]], binding: Binding, place: int) -> set[int]:
    """Return the CPUs of the rank at index `place` of the ranks that share `cores`.

    Raises BindingError when there are not enough cores for it.
    """
    first = place * binding.cores_per_rank
    end = (place + 1) * binding.cores_per_rank
    if end > len(cores):
        raise BindingError(
            f"`launch.binding.coresPerRank` is {binding.cores_per_rank}, which takes {end} cores "
            f"for {place + 1} ranks, but this container has {len(cores)} there: lower it, or "
            "`worker.slots`"
        )
    return set().union(*cores[first:end])


def bind_process(binding: Binding, local_rank: int) -> None:
    """Bind this process, and the program that replaces it; do nothing for `none`.

    Raises BindingError when the CPUs of this container do not allow it.
    """
    if binding.to != "none":
        topology = read_topology(os.sched_getaffinity(0))
        os.sched_setaffinity(0, select_cpus(binding, topology, local_rank))


def main(arguments: Sequence[str] = ()) -> int:
    """Print why not all ranks of this worker can be bound, and then return BAD_CONFIGURATION."""
    target, cores, per_socket = arguments or sys.argv[1:]
    binding = Binding(target, int(cores), int(per_socket))
    try:
        topology = read_topology(os.sched_getaffinity(0))
        for local_rank in range(int(os.environ[contract.SLOTS])):
            select_cpus(binding, topology, local_rank)
    except BindingError as problem:
        print(problem)
        return exit_codes.BAD_CONFIGURATION
    return 0


if __name__ == "__main__":
    sys.exit(main())
