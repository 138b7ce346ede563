"""The progress in the record of a release, and its line."""

from __future__ import annotations

import json

from hvdchart.run.state.progress import read_progress

REPORTED = {
    "step": 120,
    "steps": 500,
    "loss": 0.4123456,
    "samplesPerSecond": 32.04,
    "secondsLeft": 240,
}


def test_steps_that_were_only_counted_are_those_of_the_attempt() -> None:
    progress = read_progress(
        {"progress": json.dumps({"step": 120, "steps": 500, "isCounted": True})}
    )
    assert progress is not None
    assert progress.text() == "step 120 of 500 of this attempt"


def test_age_of_the_last_step_is_by_the_masters_clock() -> None:
    reported = {**REPORTED, "time": "2026-01-01T10:00:00Z"}
    for renewed, end in (
        ("09:59:00Z", "about 4 min left"),
        ("10:01:00Z", "about 4 min left"),
        ("10:01:01Z", " 61 s"),
        ("10:07:10.5Z", " 7 min"),
    ):
        record = {"progress": json.dumps(reported), "renewed": f"2026-01-01T{renewed}"}
        progress = read_progress(record)
        assert progress is not None
        assert progress.text().endswith(end)
