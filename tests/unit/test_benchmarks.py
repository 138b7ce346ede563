"""What benchmarks make of their figures, and ranks that train in turns, as real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bench import interleaved_training as interleaved
from tests.bench.bench_bare import HOST, NETWORKS, PODS, Measured
from tests.bench.report import replace_part, verdict
from tests.waiting import wait_until

# What interleaved_ranks.py does, without a framework.
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
        self.meeting = stack.enter_context(interleaved.meeting(folder))
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, party: str, number: int, setting: str = "1") -> None:
        words = [str(self.folder / interleaved.SOCKET), party, str(number), setting]
        process = subprocess.Popen([sys.executable, "-I", "-c", RANK, *words])
        self.processes.append(process)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)

    def two_parties(self, setting: str = "1") -> interleaved.Parties:
        for number in (1, 0):
            self.start("host", number)
        self.start("pods", 0, setting)
        return self.meeting.wait_for({"host": 2, "pods": 1})


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    with ExitStack() as stack:
        yield Ranks(tmp_path, stack)


def wait_for_state(rank: interleaved.Rank, expected: str) -> None:
    stat = Path(f"/proc/{rank.pid}/stat")
    wait_until(
        lambda: stat.read_text().rpartition(")")[2].split()[0] == expected,
        60,
        f"{rank.party} is in state {expected}",
    )


@pytest.mark.slow
def test_ranks_are_stopped_unless_they_are_asked(ranks: Ranks) -> None:
    parties = ranks.two_parties()
    host, pods = parties["host"], parties["pods"]
    assert [rank.number for rank in host] == [0, 1]
    for rank in [*host, *pods]:
        wait_for_state(rank, "T")
    # The slowest rank is the speed of all; the first one tells the losses.
    assert interleaved.train(host, "any", 3) == (2.0, [0.0] * 3)
    assert interleaved.train(pods, "any", 1) == (1.0, [0.0])
    for rank in [*host, *pods]:
        wait_for_state(rank, "T")
    allowed = sorted(os.sched_getaffinity(0))
    interleaved.pin({name: party[:1] for name, party in parties.items()})
    (answer,) = interleaved.ask(pods, do="train", steps=0)
    assert answer["cpus"] == allowed[:1]
    ranks.meeting.close()
    assert [process.wait(60) for process in ranks.processes] == [0, 0, 0]


@pytest.mark.slow
def test_rank_that_is_missing_has_other_settings_or_ends_is_named(ranks: Ranks) -> None:
    with pytest.raises(SystemExit, match="not ready after 0 s: 0 of 2 of host, 0 of 1 of pods"):
        ranks.meeting.wait_for({"host": 2, "pods": 1}, seconds=0)
    parties = ranks.two_parties("2")
    expected = "host and pods are not comparable: variables is {'TF_X': '1'} in the first, {'TF_X'"
    with pytest.raises(SystemExit, match=expected):
        interleaved.refuse_unless_alike(parties)
    with pytest.raises(SystemExit, match="pods: rank 0 has ended"):
        interleaved.ask(parties["pods"], do="die")


def test_speeds_are_compared_within_a_turn() -> None:
    figures = Measured(ranks=1)
    figures.seconds["resnet50"] = [{HOST: [1.0, 3.0], PODS: [2.0, 3.0]}]
    assert figures.ratios("resnet50") == [0.75]
    figures.seconds["resnet50"].append({HOST: [1.0], PODS: [4.0]})
    assert figures.ratios("resnet50") == [0.75, 0.25], "one for each start"
    assert figures.speed("resnet50", HOST) == NETWORKS["resnet50"][0] * 3 / 5.0


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([1.0, 1.002, 0.998], "within the interval"),
        ([1.0, 1.0001, 0.9999], "reached"),
        ([0.99, 0.9901, 0.9899], "missed"),
        # One figure says nothing.
        ([1.5], "within the interval"),
    ],
)
def test_verdict_is_as_sure_as_the_interval(figures: list[float], expected: str) -> None:
    assert verdict(figures, 0.998) == expected


def test_page_without_the_part_is_refused() -> None:
    page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n"
    assert replace_part(page, "x", "new") == page.replace("old", "\nnew\n")
    with pytest.raises(ValueError, match="no part between <!-- y: begin -->"):
        replace_part(page, "y", "new")
