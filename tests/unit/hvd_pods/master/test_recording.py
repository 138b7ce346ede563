"""The recording of a run's events, which tells later what the master knew."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.common import errors
from hvd_pods.common.run import Pod, parse_run
from hvd_pods.master import recording
from hvd_pods.rules import messages as m
from hvd_pods.rules.messages import Cause, Event, Moment
from hvd_pods.rules.state import Facts
from tests.unit.hvd_pods.runs import describe_run

JOB = {"metadata": {"name": "j"}, "spec": {"backoffLimit": 2}}
PROBLEM = errors.RunError("no luck")
EVENTS: list[Event] = [
    m.Started(),
    m.Terminated(),
    m.TimedOut(),
    m.Timer("renew"),
    m.RecordRead({"state": "Running"}),
    m.RecordWritten("take"),
    m.RecordChanged("take", {"holder": "b"}, 2),
    m.RecordFailed("read", 503, "away", is_temporary=True),
    m.JobRead(JOB),
    m.JobRead(None),
    m.AttemptBegins(),
    m.AttemptEnds(None),
    m.AttemptEnds(PROBLEM),
    m.EndReached(errors.SupersededError("another master")),
    m.WorkersScaled(errors.ConfigurationError("no right")),
    m.Prepared(1, errors.LaunchError("failed", 7, "TypeError: no")),
    m.HostAnswers(1, "w-0", Pod("10.0.0.1", "u", "n")),
    m.HostProblem(1, "w-0", "timed out", 3.5, is_alone=True),
    m.HostGone(1, "w-0"),
    m.PodsListed(1, {"w-0": {"status": {}}}, {"w": "quota"}, "away"),
    m.Delivered(1, ["w-0"], PROBLEM),
    m.LauncherEnded(1, 137, 2.5),
    m.CauseFound(1, Cause("rank 1: ", "TypeError: \udcff", is_sure_to_repeat=True)),
    m.CauseFound(1, None),
    m.RankMissing(1, 3, "a", 60.0),
    m.NoticeTaken(1, {"kind": "stopped", "rank": 1, "seconds": 9.0}, 4),
    m.RanksAsked(1, 4),
    m.StacksShown(1),
    m.ProgressReported(1, {"step": 3, "loss": "nan"}),
    m.ProgressStopped(1),
    m.ResultsStored("exit code 1"),
    m.RecordReleased(),
    m.Defect("Traceback"),
]
PROBLEMS = [
    errors.InterruptedRunError("terminated"),
    errors.HostsTimeoutError("2 hosts"),
    errors.LostHostError("lost w-1", 1),
    errors.WorkerLeftError("w-1 left", 143),
    errors.NotANumberError(),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def start(path: Path) -> recording.Recorder:
    described = describe_run(lostAfterSeconds=15)
    facts = Facts(parse_run(described), "own", "job-1", "uid-1")
    return recording.Recorder(path, facts, described)


def record(path: Path, events: list[Event]) -> list[tuple[Moment, Event]]:
    """Record events, a second after each other, and read them."""
    recorder = start(path)
    for number, event in enumerate(events):
        recorder.put(Moment(number, number + 0.5), event)
    recorder.close()
    return [*recording.read(iter(path.read_text().splitlines()))[1]]


def comparable(event: Event) -> dict[str, Any]:
    """The fields of an event, with errors as what the master makes of them."""
    fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    return {
        name: (type(value), str(value), vars(value), value.exit_code)
        if isinstance(value, errors.RunError)
        else value
        for name, value in fields.items()
    }


def test_each_event_is_read_as_it_was_recorded(path: Path) -> None:
    events = EVENTS + [m.AttemptEnds(problem) for problem in PROBLEMS]
    found = record(path, events)
    assert [moment for moment, _ in found] == [(n, n + 0.5) for n in range(len(events))]
    for (_, event), expected in zip(found, events, strict=True):
        assert type(event) is type(expected)
        assert comparable(event) == comparable(expected)
    kinds = [
        kind for kind in vars(m).values() if isinstance(kind, type) and issubclass(kind, Event)
    ]
    missing = {*kinds} - {m.Event, m.AttemptEvent} - {type(event) for event in EVENTS}
    assert not missing, "this table needs an event of each kind"


def test_recording_ends_at_its_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the pod's memory."""
    monkeypatch.setattr(recording, "LONGEST", 4000)
    found = record(path, [m.HostGone(1, "w-0")] * 100)
    assert 10 < len(found) < 100
    assert 3800 < path.stat().st_size < 4000


def test_file_that_hangs_does_not_keep_the_master(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of a server that is away: nobody reads from this FIFO."""
    os.mkfifo(path)
    monkeypatch.setattr(recording, "CLOSE_WITHIN", 0.01)
    monkeypatch.setattr(recording, "MOST_WAITING", 5)
    recorder = start(path)
    for _ in range(9):
        recorder.put(Moment(1.0, 2.0), m.HostGone(1, "w-0"))
    recorder.close()
    with path.open() as reader:
        lines = [*reader]
    assert len(lines) == 6, "the recording has no gap"


@pytest.mark.parametrize("file", ["/dev/full", "/no/such/file", "link"])
def test_recording_that_cannot_be_written_ends_and_nothing_else_does(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    recorder = start(tmp_path / file)
    recorder.put(Moment(1.0, 2.0), m.Started())
    recorder.put(Moment(1.0, 2.0), m.NoticeTaken(1, {"not": {"of": {"JSON"}}}))
    recorder.close()
    assert "cannot record the events of this run" in capsys.readouterr().out
    assert not (tmp_path / "target").exists()
