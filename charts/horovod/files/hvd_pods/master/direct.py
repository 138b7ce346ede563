"""Starts the ranks, with one agent connection for each worker: `launch.mode: direct`.

direct.py HOSTFILE ARGUMENTS, with the arguments of rank/start.py. It is a launcher like mpirun: it
forwards the ranks' output, ends all ranks when one fails, and exits with the code of that rank.
rank/worker_ranks.py starts a worker's ranks, over agent connections of the master's gateway
(master/gateway.py): the image needs only Python. On SIGUSR1 the launcher detaches from the ranks,
which keep running, and exits when all workers have confirmed that.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import socket
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Callable, NamedTuple, Sequence

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
from hvd_pods.master import gateway_client
from hvd_pods.master.gloo_store import GlooStore
from hvd_pods.pod import notices, streams
from hvd_pods.pod.ranks_program import START_RANKS, STAY
from hvd_pods.pod.threads import start_thread
from hvd_pods.shared import contract

# Seconds in which workers have to end their ranks.
RANKS_END_TIMEOUT_SECONDS = 5.0
# The line of rank/worker_ranks.py about the first failed rank of its worker. It writes the line
# before it ends the other ranks.
RANK_ENDED_LINE = re.compile(
    rb"^\[hvd\] rank \d+ on \S+ ended (by signal|with exit code) (\d{1,3})$", re.M
)
# The line of a worker whose ranks keep running without a master.
RANKS_STAY_LINE = re.compile(rb"^\[hvd\] ranks on \S+ go on without a master$", re.M)


class WorkerProgram(NamedTuple):
    """The program that starts a worker's ranks, the ranks' output, and the input still to send.

    client: the connection to the gateway, over which the exit code arrives.
    """

    worker: str
    client: socket.socket
    stdin: IO[bytes]
    streams: list[streams.Stream]
    line: bytearray

    def wait(self) -> int:
        """Return the program's exit code. Call this after the end of its output."""
        with self.client.makefile("rb") as file:
            line = file.readline()
        return int(line) if line.strip() else gateway_client.REMOTE_NOT_STARTED


def place_ranks(workers: Sequence[tuple[str, int]]) -> list[list[dict[str, str]]]:
    """Return for each worker the variables of each rank, as Horovod reads them with Gloo."""
    sizes = Counter(local for _, slots in workers for local in range(slots))
    placed: list[list[dict[str, str]]] = []
    # The number of earlier workers that have a rank with this local number.
    cross: Counter[int] = Counter()
    rank = 0
    size = sum(slots for _, slots in workers)
    for worker, slots in workers:
        placed.append([])
        for local in range(slots):
            numbers = {
                "RANK": rank,
                "SIZE": size,
                "LOCAL_RANK": local,
                "LOCAL_SIZE": slots,
                "CROSS_RANK": cross[local],
                "CROSS_SIZE": sizes[local],
            }
            variables = {f"HOROVOD_{name}": str(number) for name, number in numbers.items()}
            placed[-1].append({"HOROVOD_HOSTNAME": worker, **variables})
            cross[local] += 1
            rank += 1
    return placed


def begin(
    worker: str, request: dict[str, Any], look: Callable[[str, bytes], None]
) -> WorkerProgram:
    """Start the ranks of a worker; call `look` with the worker and lines of its standard error.

    Raises OSError.
    """
    (given_in, own_in), (own_out, given_out), (own_errors, given_errors) = (
        os.pipe() for _ in range(3)
    )
    ends = (given_in, given_out, given_errors)
    client = gateway_client.ask(worker, START_RANKS, ends, request["stay"])
    for end in ends:
        os.close(end)
    os.set_blocking(own_in, False)
    output = streams.Stream(own_out, 1)
    errors = streams.Stream(own_errors, 2, partial(look, worker))
    line = bytearray(json.dumps(request).encode() + b"\n")
    # Closing this pipe ends the ranks of the worker.
    return WorkerProgram(worker, client, open(own_in, "wb", buffering=0), [output, errors], line)


class WorkerReports:
    """The workers' reports: the first failed rank's exit code, and whose ranks go on alone.

    Agent connections of workers whose ranks failed as a consequence may end before the agent
    connection of the first failed rank.
    """

    def __init__(self) -> None:
        self.exit_code = 0
        self.staying: set[str] = set()

    def look(self, worker: str, lines: bytes) -> None:
        """Find a worker's reports in these lines."""
        if RANKS_STAY_LINE.search(lines):
            self.staying.add(worker)
        report = None if self.exit_code else RANK_ENDED_LINE.search(lines)
        if report:
            code = int(report[2]) + (128 if report[1] == b"by signal" else 0)
            # Ranks may write such a line themselves, with any number.
            self.exit_code = code if code < 256 else 0


class WorkerPrograms:
    """The programs of all workers, until all have ended."""

    def __init__(self, programs: Sequence[WorkerProgram], reports: WorkerReports) -> None:
        self._reports = reports
        self._programs = list(programs)
        self._selector = selectors.DefaultSelector()
        for program in programs:
            self._selector.register(program.stdin, selectors.EVENT_WRITE, program)
            for stream in program.streams:
                self._selector.register(stream.source, selectors.EVENT_READ, stream)
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer)
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        self._selector.register(reader, selectors.EVENT_READ)
        self._code = 0
        self._kill_at = float("inf")
        self._is_left = False

    def follow(self) -> int:
        """Forward the output; return the exit code of the first failed rank or agent connection."""
        while self._programs:
            seconds_left = self._kill_at - time.monotonic()
            for key, _ in self._selector.select(
                None if seconds_left == float("inf") else max(0.0, seconds_left)
            ):
                if key.data is None:
                    self._handle_signals(os.read(key.fd, 4096))
                elif isinstance(key.data, WorkerProgram):
                    self._give(key.data)
                elif not key.data.pass_on() and not key.data.is_open:
                    self._selector.unregister(key.fd)
            self._take_ended()
            workers = {program.worker for program in self._programs}
            are_left = self._is_left and self._reports.staying >= workers
            if are_left or time.monotonic() >= self._kill_at:
                break
        for program in self._programs:
            program.client.close()
        return self._code

    def _handle_signals(self, numbers: bytes) -> None:
        if signal.SIGUSR1 in numbers:
            self._leave()
        if signal.SIGTERM in numbers:
            self._end(128 + signal.SIGTERM)

    def _take_ended(self) -> None:
        """Take the exit codes of the programs whose output has ended."""
        for program in [
            program
            for program in self._programs
            if not any(stream.is_open for stream in program.streams)
        ]:
            self._programs.remove(program)
            code = program.wait()
            if code:
                self._end(self._reports.exit_code or code)

    def _leave(self) -> None:
        """Detach from the ranks; a worker that does not confirm in time ends its ranks."""
        if any(program.line for program in self._programs):
            # Some workers have not yet received the whole request.
            self._end(128 + signal.SIGTERM)
        if self._code:
            return
        self._is_left = True
        self._reports.staying.clear()
        self._code = 128 + signal.SIGUSR1
        self._kill_at = time.monotonic() + RANKS_END_TIMEOUT_SECONDS
        for program in self._programs:
            # The gateway forwards it to the worker's agent, and the agent to the ranks.
            with suppress(OSError):
                program.client.sendall(STAY)

    def _give(self, program: WorkerProgram) -> None:
        """Send as much input as a program takes without blocking: a slow one delays no other."""
        if program.stdin.closed:
            return
        try:
            del program.line[: os.write(program.stdin.fileno(), program.line)]
        except BrokenPipeError:
            program.line.clear()
        if not program.line:
            # Keep the pipe open: closing it ends the ranks.
            self._selector.unregister(program.stdin)

    def _end(self, code: int) -> None:
        """End the ranks of the other workers, and exit with this code."""
        if self._code:
            return
        self._code = code
        self._kill_at = time.monotonic() + RANKS_END_TIMEOUT_SECONDS
        for program in self._programs:
            if program.line:
                self._selector.unregister(program.stdin)
            program.stdin.close()


def main() -> int:
    """Run the ranks; return the exit code of the first rank that fails."""
    address, _, secret = notices.parse_address(os.environ.get(notices.ADDRESS, ""))
    lines = (line.split(" slots=") for line in Path(sys.argv[1]).read_text().splitlines())
    workers = [(worker, int(slots)) for worker, slots in lines]
    # Set these also without a rendezvous: Horovod then fails. With MPI, each rank would train
    # alone.
    variables = dict.fromkeys(("HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"), "gloo")
    variables["PYTHONUNBUFFERED"] = "1"
    if os.environ.get(contract.FRAMEWORK) not in ("torch", "jax"):
        store = GlooStore(address, secret)
        start_thread("gloo-store", store.serve)
        variables["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = address
        variables["HOROVOD_GLOO_RENDEZVOUS_PORT"] = str(store.port)
    request = {
        "directory": os.getcwd(),
        "arguments": sys.argv[2:],
        "variables": variables,
        "stay": float(os.environ.get(contract.ORPHAN_SECONDS, "0")),
    }
    reports = WorkerReports()
    placed = zip(workers, place_ranks(workers))
    programs = [
        begin(worker, {**request, "ranks": ranks}, reports.look) for (worker, _), ranks in placed
    ]
    return WorkerPrograms(programs, reports).follow()


if __name__ == "__main__":
    sys.exit(main())
