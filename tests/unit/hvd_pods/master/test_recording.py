"""The recording of a run's events, which tells later what the master knew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hvd_pods.master import recording
from hvd_pods.rules import messages as m
from hvd_pods.rules.messages import Moment
from hvd_pods.rules.state import Phase


def record(path: Path, number: int) -> None:
    """Record an event so many times."""
    recorder = recording.Recorder(path, "{}")
    for _ in range(number):
        recorder.put(Moment(1.0, 2.0), m.HostGone(1, "w-0"), Phase.TRAINING, [m.EndLauncher()])
    recorder.close()


def test_recording_ends_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the pod's memory."""
    monkeypatch.setattr(recording, "LONGEST", 4000)
    record(tmp_path / "events", 100)
    assert 3700 < (tmp_path / "events").stat().st_size < 4000


def test_file_that_hangs_does_not_keep_the_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of a server that is away: nobody reads from this FIFO."""
    os.mkfifo(tmp_path / "events")
    monkeypatch.setattr(recording, "CLOSE_WITHIN", 0.01)
    monkeypatch.setattr(recording, "MOST_WAITING", 5)
    record(tmp_path / "events", 9)
    lines = (tmp_path / "events").read_text().splitlines()
    assert len(lines) == 6, "the recording has no gap"


@pytest.mark.parametrize("file", ["/dev/full", "/no/such/file", "link"])
def test_recording_that_cannot_be_written_ends_and_nothing_else_does(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    record(tmp_path / file, 1)
    assert "cannot record the events of this run" in capsys.readouterr().out
    assert not (tmp_path / "target").exists()
