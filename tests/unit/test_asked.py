"""tests/bench/asked.py with real processes: ranks that work when they are asked, and stop else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bench import asked
from tests.waiting import wait_until

# What asked_ranks.py does, without a framework. A rank may have another setting, or end when asked.
RANK = """
import json, os, socket, sys
path, party, number, setting = sys.argv[1:]
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
def say(what):
    connection.sendall(json.dumps(what).encode() + b"\\n")
say({"party": party, "rank": int(number), "alike": {"variables": {"TF_X": setting}}})
for line in connection.makefile("r"):
    work = json.loads(line)
    if work["do"] == "die":
        sys.exit(3)
    losses = [float(number)] * work["steps"]
    say({"seconds": 1.0 + int(number), "losses": losses, "cpus": sorted(os.sched_getaffinity(0))})
"""


class Ranks:
    """Processes that play ranks, and the meeting to which they come."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.meeting = stack.enter_context(asked.meeting(folder))
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, party: str, number: int, setting: str = "1") -> None:
        words = [str(self.folder / asked.SOCKET), party, str(number), setting]
        process = subprocess.Popen([sys.executable, "-I", "-c", RANK, *words])
        self.processes.append(process)
        self.stack.callback(process.kill)

    def two_parties(self, setting: str = "1") -> asked.Parties:
        for number in (1, 0):
            self.start("host", number)
        self.start("pods", 0, setting)
        return self.meeting.wait_for({"host": 2, "pods": 1})


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    with ExitStack() as stack:
        made = Ranks(tmp_path, stack)
        yield made
        for process in made.processes:
            process.kill()
            process.wait()


def state(rank: asked.Rank) -> str:
    return Path(f"/proc/{rank.pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for_state(rank: asked.Rank, expected: str) -> None:
    wait_until(lambda: state(rank) == expected, 60, f"{rank.party} is in state {expected}")


def test_ranks_are_stopped_unless_they_are_asked(ranks: Ranks) -> None:
    parties = ranks.two_parties()
    host, pods = parties["host"], parties["pods"]
    assert [rank.number for rank in host] == [0, 1]
    assert {rank.pid for rank in [*host, *pods]} == {process.pid for process in ranks.processes}
    for rank in [*host, *pods]:
        wait_for_state(rank, "T")
    # The slowest rank is the speed of all; the first one tells the losses.
    assert asked.train(host, "any", 3) == (2.0, [0.0] * 3)
    assert asked.train(pods, "any", 1) == (1.0, [0.0])
    for rank in [*host, *pods]:
        wait_for_state(rank, "T")


def test_ranks_end_with_the_meeting(ranks: Ranks) -> None:
    ranks.two_parties()
    ranks.meeting.close()
    assert [process.wait(60) for process in ranks.processes] == [0, 0, 0]


def test_ranks_of_each_party_have_the_same_cpus_one_each(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = ranks.two_parties()
    allowed = sorted(os.sched_getaffinity(0))
    asked.pin({name: party[:1] for name, party in parties.items()})
    (answer,) = asked.ask(parties["pods"], do="train", steps=0)
    assert answer["cpus"] == allowed[:1]
    bound: list[tuple[int, set[int]]] = []
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 5})
    monkeypatch.setattr("os.sched_setaffinity", lambda task, cpus: bound.append((task, cpus)))
    asked.pin(parties)
    assert bound == [
        (parties["host"][0].pid, {3}),
        (parties["host"][1].pid, {5}),
        (parties["pods"][0].pid, {3}),
    ]
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3})
    with pytest.raises(SystemExit, match="host: 2 ranks for 1 CPUs, one each"):
        asked.pin(parties)


def test_what_differs_is_not_compared(ranks: Ranks) -> None:
    parties = ranks.two_parties("2")
    expected = "host and pods are not comparable: variables is {'TF_X': '1'} in the first, {'TF_X'"
    with pytest.raises(SystemExit, match=expected):
        asked.refuse_unless_alike(parties)
    asked.refuse_unless_alike({"host": parties["host"]})


def test_rank_that_ends_is_named(ranks: Ranks) -> None:
    parties = ranks.two_parties()
    with pytest.raises(SystemExit, match="pods: rank 0 has ended"):
        asked.ask(parties["pods"], do="die")


@pytest.mark.slow
def test_waiting_ends_with_what_starts_the_ranks(ranks: Ranks) -> None:
    ranks.start("host", 0)

    def check() -> None:
        raise SystemExit("the launcher has ended")

    with pytest.raises(SystemExit, match="the launcher has ended"):
        ranks.meeting.wait_for({"host": 2}, check)


@pytest.mark.slow
def test_ranks_that_do_not_come_are_counted(ranks: Ranks) -> None:
    expected = "not ready after 0 s: 0 of 2 of host, 0 of 1 of pods"
    sizes = {"host": 2, "pods": 1}
    with pytest.raises(SystemExit, match=expected):
        ranks.meeting.wait_for(sizes, seconds=0)
