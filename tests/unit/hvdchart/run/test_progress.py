"""The progress in the record of a release, and its line."""

from __future__ import annotations

import json
from typing import Any

from hvdchart.run.progress import Progress, read_progress

TOLD = {"step": 120, "steps": 500, "loss": 0.4123456, "imagesPerSecond": 32.04, "secondsLeft": 240}


def record(told: Any, **more: str) -> dict[str, str]:
    return {"progress": told if isinstance(told, str) else json.dumps(told), **more}


def test_a_step_that_is_long_ago_is_said_by_the_masters_clock() -> None:
    told = {**TOLD, "time": "2026-01-01T10:00:00Z"}
    progress = read_progress(record(told, renewed="2026-01-01T10:07:10.5Z"))
    assert progress is not None
    assert progress.idle_seconds == 430
    assert progress.text().endswith("images/s, no step for 7 min")
    soon = read_progress(record(told, renewed="2026-01-01T10:01:00Z"))
    assert soon is not None
    assert soon.text().endswith("about 4 min left"), "the record is written every ten seconds"
    later = read_progress(record(told, renewed="2026-01-01T10:01:01Z"))
    assert later is not None
    assert later.text().endswith("no step for 61 s")
    before = read_progress(
        record({"step": 7, "time": told["time"]}, renewed="2026-01-01T09:59:00Z")
    )
    assert before == Progress(7)
