"""The program that the launcher starts for every rank, around the rank's script.

It checks the rank's place, starts the script or lets the warm process fork it, and ends as the
script ends. A launcher that ignores its host list trains on one worker and reports success.
Therefore each rank checks that it runs in a worker, that all ranks of the run were started, and
that its worker has as many ranks as slots. Together, these checks ensure the right number of ranks
on every worker.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import namedtuple
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

sys.path.insert(0, os.path.abspath(__file__).rsplit("/", 3)[0])
from hvd_pods.pod import notices, rank_variables
from hvd_pods.rank import child_rank, fusion, rank_end, rank_registry, warm_client
from hvd_pods.shared import contract, files, thread_counts
from hvd_pods.shared.binding import OPTIONS, Binding, BindingError, bind_process
from hvd_pods.shared.exit_codes import BAD_CONFIGURATION
from hvd_pods.shared.launcher_options import LAUNCHER_OPTIONS
from hvd_pods.shared.ranges import format_ranges

# The timeout in seconds for the server where ranks of Horovod meet, and the delay between retries.
STORE_TIMEOUT_SECONDS = 60.0
STORE_RETRY_INTERVAL_SECONDS = 0.2


class Arguments(namedtuple("Arguments", ["binding", "ranks", "command"])):
    """The binding, the number of ranks of the run, and the script."""


class RankPlace(namedtuple("RankPlace", ["rank", "size", "local_rank", "local_size"])):
    """A rank's number and the number of ranks: in the run, and on its worker."""


def find_place(environment: Mapping[str, str]) -> RankPlace | None:
    """Read the variables that the launcher set; None unless a known launcher set all of its own.

    Raises ValueError for a variable that is not a number.
    """
    for names in LAUNCHER_OPTIONS["rankVariables"].values():
        if all(name in environment for name in names):
            return RankPlace(*(int(environment[name]) for name in names))
    return None


def find_problem(place: RankPlace | None, ranks: int, slots: str | None) -> str | None:
    """Return the problem with this rank's place, or None.

    `ranks` is the run's number of ranks. `slots` is HVD_SLOTS of this worker.
    """
    if slots is None:
        return "this is not a worker of the release: the launcher ignored its host list"
    if place is None:
        return "no known launcher's variables are set (Open MPI, Intel MPI, MPICH, Gloo)"
    if place.size != ranks:
        return f"the launcher started {place.size} ranks, but the workers' slots add up to {ranks}"
    if place.local_size != int(slots):
        return f"{place.local_size} ranks were started on this worker, which has {slots} slots"
    return None


def parse_arguments(words: Sequence[str]) -> Arguments:
    """Parse the arguments from master/launch.py: options in any order, number of ranks, command.

    Raises ValueError or IndexError for anything else.
    """
    options = dict(zip(OPTIONS, map(str, Binding())))
    rest = list(words)
    while rest[0] in options:
        name = rest.pop(0)
        options[name] = rest.pop(0)
    target, cores, per_socket = options.values()
    return Arguments(Binding(target, int(cores), int(per_socket)), int(rest[0]), rest[1:])


def prepare(arguments: Arguments) -> tuple[RankPlace | None, str | None]:
    """Check this rank's place and bind the rank to it.

    Return the place, or None if it is unknown, and the problem, or None if there is none.
    """
    place = find_place(os.environ)
    problem = find_problem(place, arguments.ranks, os.environ.get(contract.SLOTS))
    program = arguments.command[0]
    if problem is None and files.which(program) is None:
        problem = f"command {program!r} is not on PATH ({os.environ.get('PATH')}) in this image"
    if problem is None and place is not None:
        try:
            bind_process(arguments.binding, place.local_rank)
        except BindingError as error:
            problem = str(error)
    return place, problem


def warn_of_driver(place: RankPlace) -> None:
    """Warn once per worker that its driver is too old for the image. The rank starts anyway.

    The script may bring another CUDA than the image shows.
    """
    if place.local_rank or not thread_counts.has_gpus(thread_counts.DEVICES):
        return
    # Imported here because no other rank needs it.
    from hvd_pods.rank import gpu_driver

    problem = gpu_driver.find_problem(os.environ, gpu_driver.read_cuda())
    if problem:
        print(f"[hvd] warning: {socket.gethostname()}: {problem}", file=sys.stderr, flush=True)


def authenticate_to_store(variables: Mapping[str, str]) -> None:
    """Send the run's secret to the server where ranks of Horovod meet.

    The server responds only to clients that have the secret. Do nothing if the launcher has no such
    server, or the master sent no secret. Without a response in time, log
    that and let the rank go on.
    """
    address = variables.get("HOROVOD_GLOO_RENDEZVOUS_ADDR")
    secret = notices.parse_address(variables.get(notices.ADDRESS, ""))[2]
    if not address or not secret:
        return
    port = int(variables["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    until = time.monotonic() + STORE_TIMEOUT_SECONDS
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(
            (address, port), STORE_TIMEOUT_SECONDS
        ) as connection:
            connection.sendall(f"HVD {secret} HTTP/1.0\r\n\r\n".encode())
            if connection.recv(1):
                return
        # The server's backlog is so full that it could not accept this connection.
        time.sleep(STORE_RETRY_INTERVAL_SECONDS)
    print(f"[hvd] nothing answers at {address}:{port}, where ranks of Horovod meet", flush=True)


def begin_cold(rank: int, program: str, pid: int) -> None:
    """Prepare a script's process before the script begins; call this in that process."""
    child_rank.prepare_python(program, rank, rank_registry.open_stack_file(rank))
    rank_registry.register(rank, pid)


def fail(problem: object, code: int) -> int:
    """Print the reason why the script does not start, and return the exit code."""
    print(f"[hvd] error: {socket.gethostname()}: {problem}", file=sys.stderr, flush=True)
    rank_end.abort_under_hydra(code)
    return code


def main() -> int:
    """Run the script to its end, and return the exit code for its launcher.

    If the script must not start, print the problem and return the exit code for it.
    """
    arguments = parse_arguments(sys.argv[1:])
    place, problem = prepare(arguments)
    if problem is not None or place is None:
        return fail(problem, BAD_CONFIGURATION)
    cpus = ",".join(format_ranges(sorted(os.sched_getaffinity(0))))
    rank_name = f"rank {place.rank} of {place.size} on {socket.gethostname()}"
    print(f"[hvd] {rank_name}, CPUs {cpus}", flush=True)
    warn_of_driver(place)
    chosen = thread_counts.set_threads(os.environ, place.local_size)
    if chosen and place.rank == 0:
        print(f"[hvd] {chosen}", flush=True)
    os.environ.update(fusion.choose(place.size, os.environ))
    os.environ.update(rank_variables.output_of_run(os.environ))
    os.environ.update(rank_variables.choose(place, os.environ))
    if place.rank == 0:
        try:
            rank_variables.check_rendezvous(os.environ)
        except rank_variables.RendezvousError as error:
            # Imported here because no other rank needs it.
            from hvd_pods.rank import exception_notice

            exception_notice.notify(os.environ, place.rank, error)
            return fail(error, error.code)
    authenticate_to_store(os.environ)
    register = partial(rank_registry.register, place.rank)
    logs_reason = place.local_rank == 0
    command = arguments.command
    status = warm_client.run(command, place.rank, register, logs_reason)
    if status is None:
        status = child_rank.run(command, partial(begin_cold, place.rank, command[0]))
    rank_end.report(place.rank, status)
    return rank_end.finish(status)


if __name__ == "__main__":
    sys.exit(main())
