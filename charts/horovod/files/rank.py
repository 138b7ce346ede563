"""What the launcher starts for every rank: check the rank's place, then become the script.

A launcher that ignores its host list trains on one host and reports success. Each rank therefore
checks that it runs in a worker, with all the ranks of the run, and with as many beside it as the
worker has slots; together that puts the right number on every host.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent))
import hydra
from binding import BindingError, bind
from settings import BAD_CONFIGURATION, Binding

# How launchers tell a rank its rank, the world's size, its local rank and the local size.
LAUNCHERS = {
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "Intel MPI or MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "horovodrun with Gloo": (
        "HOROVOD_RANK",
        "HOROVOD_SIZE",
        "HOROVOD_LOCAL_RANK",
        "HOROVOD_LOCAL_SIZE",
    ),
}


@dataclass(frozen=True)
class Place:
    """Where a rank finds itself."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def find_place(environment: Mapping[str, str]) -> Place | None:
    """Read the launcher's own variables; None when no known launcher set them all."""
    for names in LAUNCHERS.values():
        if all(name in environment for name in names):
            return Place(*(int(environment[name]) for name in names))
    return None


def problem(place: Place | None, ranks: int, slots: str | None) -> str | None:
    """What is wrong with this rank's place, or None."""
    if slots is None:
        return "this is not a worker of the release: the launcher ignored its host list"
    if place is None:
        return "no known launcher's variables are set (Open MPI, Intel MPI, MPICH, Gloo)"
    if ranks == 0:
        # An elastic run: hosts come and go, and ranks with them.
        return None
    if place.size != ranks:
        return f"the launcher started {place.size} ranks, the hosts' slots add up to {ranks}"
    if place.local_size != int(slots):
        return f"{place.local_size} ranks were put on this host, which has {slots} slots"
    return None


def cpu_list(cpus: set[int]) -> str:
    """CPU numbers as people write them: 0-3,8."""
    ordered = sorted(cpus)
    starts = [cpu for cpu in ordered if cpu - 1 not in cpus]
    ends = [cpu for cpu in ordered if cpu + 1 not in cpus]
    return ",".join(f"{a}-{b}" if a != b else str(a) for a, b in zip(starts, ends))


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments: how to bind, how many ranks the run has, and the script."""
    parser = argparse.ArgumentParser(prog="rank.py", description=__doc__)
    parser.add_argument("--bind-to", default="none")
    parser.add_argument("--cores-per-rank", type=int, default=0)
    parser.add_argument("--ranks-per-socket", type=int, default=0)
    parser.add_argument("ranks", type=int, help="0 when their number may change")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args(words)


def prepare(arguments: argparse.Namespace) -> tuple[Place | None, str | None]:
    """Check this rank's place and bind it there; what is wrong, or None."""
    place = find_place(os.environ)
    wrong = problem(place, arguments.ranks, os.environ.get("HVD_SLOTS"))
    program = arguments.command[0]
    if wrong is None and shutil.which(program) is None:
        wrong = f"command {program!r} is not on PATH ({os.environ.get('PATH')}) in this image"
    if wrong is None and place is not None:
        binding = Binding(arguments.bind_to, arguments.cores_per_rank, arguments.ranks_per_socket)
        try:
            bind(binding, place.local_rank)
        except BindingError as error:
            wrong = str(error)
    return place, wrong


def main() -> int:
    """Become the script, or say what is wrong and return the exit code for it."""
    arguments = parse(sys.argv[1:])
    host = socket.gethostname()
    place, wrong = prepare(arguments)
    if wrong is not None or place is None:
        print(f"[hvd] error: {host}: {wrong}", file=sys.stderr, flush=True)
        hydra.abort(BAD_CONFIGURATION)
        return BAD_CONFIGURATION
    cpus = cpu_list(os.sched_getaffinity(0))
    print(f"[hvd] rank {place.rank} of {place.size} on {host}, CPUs {cpus}", flush=True)
    if "PMI_FD" in os.environ:
        return hydra.supervise(arguments.command)
    os.execvp(arguments.command[0], arguments.command)


if __name__ == "__main__":
    sys.exit(main())
