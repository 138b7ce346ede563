"""Ranks that the others wait for, as `status` shows them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from hvdchart.run.state.release import Release
from hvdchart.run.state.stalls import Stall, read_stall
from hvdchart.run.state.status_text import status_report
from hvdchart.run.state.view import RunView
from tests.support.fakes.cluster import FakeCluster
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import JOB, MASTER, STATEFUL_SET, WORKERS, job
from tests.unit.hvdchart.played_runs import play_run

SINCE = "2026-01-01T10:04:45Z"
PLACE = "data/load.py:41 in next_batch"
STALL = {
    "rank": 1,
    "worker": "hvd-worker-1",
    "what": "has not joined grads_0",
    "since": SINCE,
    "place": PLACE,
}


def stalled(*conditions: tuple[str, str, str], **changes: Any) -> Release:
    """A run whose master has written into the record which rank the others wait for."""
    record = {"job": JOB, "stall": json.dumps({**STALL, **changes})}
    run = job(*conditions)
    return Release("hvd", [run], [STATEFUL_SET], [MASTER, *WORKERS], [], record)


def test_the_stall_is_that_of_the_record() -> None:
    since = datetime.fromisoformat(SINCE).timestamp()
    text = "rank 1 on hvd-worker-1 has not joined grads_0, at data/load.py:41 in next_batch"
    stall = RunView(stalled()).status.stall
    assert stall == Stall(1, "hvd-worker-1", "has not joined grads_0", since, PLACE)
    assert stall.text() == text
    without = RunView(stalled(worker="", place="")).status.stall
    assert without
    assert without.text() == "rank 1 has not joined grads_0"


def test_a_run_that_has_ended_is_not_stalled() -> None:
    assert not RunView(stalled(("Complete", "", ""))).status.stall


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"rank": 1}', '{"rank": -1, "since": "2026-01-01T10:04:45Z"}']
)
def test_another_text_is_no_stall(text: str) -> None:
    assert read_stall({"stall": text}) is None


def test_status_has_the_time_since_the_last_step() -> None:
    """It is found a while after it has begun."""
    release = stalled()
    progress = json.dumps({"step": 7, "time": "2026-01-01T10:04:00Z"})
    record = {**release.record, "progress": progress, "renewed": "2026-01-01T10:05:10Z"}
    now = datetime.fromisoformat("2026-01-01T10:05:13Z").timestamp()
    status = RunView(replace(release, record=record)).status
    line = next(line for line in status_report(status, "team", now) if "stalled" in line)
    head, _, who = line.partition(": ")
    assert re.findall(r"\d+ s", head) == ["28 s", "70 s"]
    assert who.startswith("rank 1 on")


def test_status_says_how_long_a_stall_has_lasted(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    release = stalled()
    now = datetime.fromisoformat("2026-01-01T10:10:45Z").timestamp()
    lines = list(status_report(RunView(release).status, "team", now))
    assert any(line.startswith("stalled for at least 6 min: rank 1 on") for line in lines), lines
    play_run(fake_cluster, job(), MASTER)
    fake_cluster.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": release.record})
    assert "at data/load.py:41 in next_batch\n" in hvdchart("status", "hvd").output
    document = json.loads(hvdchart("status", "hvd", "-o", "json").output)
    assert document["stall"]["rank"] == 1
