"""The event log of a run, which shows later what the master knew."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.master.event_log import EventLog, replay
from hvd_pods.rules.events import Event, Moment, NoticeTaken, Started, WorkerGone
from hvd_pods.rules.run_state import Assignment
from hvd_pods.shared.run import parse_run
from tests.support.runs import describe_run
from tests.support.world import World
from tests.unit.hvd_pods.rules.random_events import happen_by

DESCRIBED = describe_run(lost_after_seconds=15, fail_on_nan=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def start(path: Path, **limits: Any) -> EventLog:
    assignment = Assignment(parse_run(DESCRIBED), "own", "job-1", "uid-1")
    return EventLog(path, assignment, DESCRIBED, **limits)


def put_all(event_log: EventLog, happened: Iterable[tuple[Moment, Event]]) -> None:
    for moment, event in happened:
        event_log.put(moment, event)


@pytest.mark.parametrize("seed", range(5))
def test_replayed_run_is_decided_alike(path: Path, seed: int) -> None:
    """Whatever happens in it."""
    world = World(parse_run(DESCRIBED))
    chance = random.Random(seed)  # noqa: S311
    world.put(Started())
    happen_by(world, chance, times=200)
    event_log = start(path)
    put_all(event_log, [(moment, event) for moment, event, _ in world.history])
    event_log.close()
    replayed = [*replay(iter(path.read_text().splitlines()))]
    assert [repr(effects) for *_, effects in replayed] == [
        repr(effects) for *_, effects in world.history
    ]
    assert repr(replayed[-1][2]) == repr(world.state)


def test_event_log_ends_at_its_limit(path: Path) -> None:
    """It is in the pod's memory."""
    event_log = start(path, max_bytes=4000)
    put_all(event_log, [(Moment(1.0, 2.0), WorkerGone(1, "w-0"))] * 100)
    event_log.close()
    assert 3800 < path.stat().st_size < 4000


def test_file_that_hangs_does_not_keep_the_master(path: Path) -> None:
    """As one of a server that is away: nobody reads from this FIFO."""
    os.mkfifo(path)
    event_log = start(path, close_timeout_seconds=0.01, max_queued_events=5)
    put_all(event_log, [(Moment(1.0, 2.0), WorkerGone(1, "w-0"))] * 9)
    event_log.close()
    with path.open() as reader:
        lines = [*reader]
    assert len(lines) == 6, "the event log has no gap"


@pytest.mark.parametrize("file", ["/dev/full", "/no/such/file", "link"])
def test_event_log_that_cannot_be_written_ends_and_nothing_else_does(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    event_log = start(tmp_path / file)
    event_log.put(Moment(1.0, 2.0), Started())
    broken: Any = {"not": {"of": {"JSON"}}}
    event_log.put(Moment(1.0, 2.0), NoticeTaken(1, broken))
    event_log.close()
    assert "event log" in capsys.readouterr().out
    assert not (tmp_path / "target").exists()
