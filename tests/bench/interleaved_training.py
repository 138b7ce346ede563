"""Trainings that run side by side in turns: a rank works when it is asked to, else it is stopped.

Ranks (interleaved_ranks.py) connect to a socket in a folder that pods, containers and other
processes of this machine share. The kernel tells which process is at the other end. That process is
stopped (SIGSTOP) while another training has its turn, and takes no CPU time from it. Needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hvd_pods.shared.threads import YIELD
from images.builder.build import build
from tests.bench.contestants import in_turns
from tests.support.in_image.sandbox import Sandbox, sandbox

SCRIPT = Path(__file__).with_name("interleaved_ranks.py")
SOCKET = "interleaved.sock"
# The path of the shared folder inside pods and containers.
FOLDER = "/output"
# Environment of ranks that have a CPU each. Stopped ranks must not cause a stall.
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1"),
    "PYTHONPATH": "/examples",
    "TF_ENABLE_ONEDNN_OPTS": "1",
    YIELD: "1",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "600",
}
# Time limits in seconds: until all ranks are ready, and for one answer.
START = 600.0
ANSWER = 120.0
# Struct ucred of unix(7): pid, uid, gid.
_CREDENTIALS = struct.Struct("3i")


def command(party: str, networks: Mapping[str, object]) -> list[str]:
    """What each rank of a party runs: the networks and gradients that interleaved_ranks.py has."""
    script = f"{FOLDER}/{SCRIPT.name}"
    path = f"{FOLDER}/{SOCKET}"
    return ["python3", script, path, party, json.dumps(networks)]


class Rank:
    """A rank that has connected: its party, its number, and what must be alike to compare it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        # The kernel translates the process ID from the pod's numbers into ours.
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid: int = _CREDENTIALS.unpack(peer)[0]
        connection.settimeout(ANSWER)
        self._lines = connection.makefile("r")
        self.party = "a training"
        self.number = 0
        first = self.receive()
        self.party = first["party"]
        self.number = first["rank"]
        self.alike = first["alike"]

    def ask(self, network: str) -> None:
        self._connection.sendall(f"{network}\n".encode())

    def receive(self) -> Any:
        """What the rank answers. Ends the program if it has ended, or says nothing."""
        try:
            line = self._lines.readline()
        except (TimeoutError, ConnectionError) as problem:
            raise SystemExit(f"{self.party}: no answer of rank {self.number}: {problem}") from None
        if not line:
            raise SystemExit(f"{self.party}: rank {self.number} has ended; its output says why")
        return json.loads(line)

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def close(self) -> None:
        self.signal(signal.SIGCONT)
        self._lines.close()
        self._connection.close()


Parties = dict[str, list[Rank]]


@contextmanager
def examples(script: Path = SCRIPT) -> Iterator[Sandbox]:
    """The image of the examples, with a script in the folder that it mounts."""
    with (
        tempfile.TemporaryDirectory(prefix="hvd-bench-") as folder,
        sandbox(build("examples"), Path(folder) / "output") as inside,
    ):
        shutil.copy(script, inside.folder)
        yield inside


class Rendezvous:
    """The socket in a folder to which the ranks of all parties connect, and end when it closes."""

    def __init__(self, folder: Path) -> None:
        path = folder / SOCKET
        path.unlink(missing_ok=True)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        # Ranks run as other users.
        path.chmod(0o777)
        self._server.listen()
        # Seconds between two calls of `check` in wait_for.
        self._server.settimeout(0.2)
        self._ranks: list[Rank] = []

    def close(self) -> None:
        self._server.close()
        while self._ranks:
            self._ranks.pop().close()

    def wait_for(self, sizes: Mapping[str, int], check: Callable[[], None]) -> Parties:
        """The ranks of each party in order: alike, bound and stopped; `check` ends a vain wait."""
        parties: Parties = {name: [] for name in sizes}
        deadline = time.monotonic() + START
        while any(len(parties[name]) < size for name, size in sizes.items()):
            try:
                connection, _ = self._server.accept()
            except TimeoutError:
                check()
                if time.monotonic() > deadline:
                    there = ", ".join(f"{len(parties[n])} of {sizes[n]} of {n}" for n in sizes)
                    raise SystemExit(f"not ready after {START:.0f} s: {there}") from None
                continue
            rank = Rank(connection)
            self._ranks.append(rank)
            party = parties[rank.party]
            party.append(rank)
            if len(party) == sizes[rank.party]:
                party.sort(key=lambda each: each.number)
                for each in party:
                    each.signal(signal.SIGSTOP)
                print(f"ready: {rank.party}", flush=True)
        _refuse_unless_alike(parties)
        _pin(parties)
        return parties


def _pin(parties: Parties) -> None:
    """Bind the ranks of each party to the same CPUs, one each, with all their present threads."""
    cpus = sorted(os.sched_getaffinity(0))
    for name, ranks in parties.items():
        if len(ranks) > len(cpus):
            raise SystemExit(f"{name}: {len(ranks)} ranks for {len(cpus)} CPUs, one each")
        for rank, cpu in zip(ranks, cpus, strict=False):
            for task in Path(f"/proc/{rank.pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {cpu})


def _refuse_unless_alike(parties: Parties) -> None:
    """End the program unless all ranks have the same software and the same settings."""
    first, *others = [rank for party in parties.values() for rank in party]
    for rank in others:
        if first.alike != rank.alike:
            raise SystemExit(
                f"{first.party} and {rank.party} are not comparable: {first.alike} in the first, "
                f"{rank.alike} in the second"
            )


def take_turns(parties: Parties, network: str, turns: int) -> dict[str, list[float]]:
    """The seconds of a step by party, a figure for each turn."""
    seconds: dict[str, list[float]] = {party: [] for party in parties}
    for party in in_turns(tuple(parties), turns):
        seconds[party].append(_make_step(parties[party], network))
    return seconds


def _make_step(ranks: Sequence[Rank], network: str) -> float:
    """Let ranks make a step while all others stay stopped; the seconds of the slowest one."""
    for rank in ranks:
        rank.signal(signal.SIGCONT)
    for rank in ranks:
        rank.ask(network)
    seconds = [float(rank.receive()) for rank in ranks]
    for rank in ranks:
        rank.signal(signal.SIGSTOP)
    return max(seconds)
