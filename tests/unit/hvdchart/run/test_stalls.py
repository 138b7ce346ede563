"""Ranks that the others wait for, as `status` shows them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from hvdchart.run.release import Release
from hvdchart.run.report import status_report
from hvdchart.run.stalls import Stall, parse_stall, place_of
from hvdchart.run.view import RunView
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command
from tests.unit.hvdchart.runs import JOB, MASTER, STATEFUL_SET, WORKERS, event, job, play

TEXT = "rank 1 on hvd-worker-1 has not joined grads_0 for 15 s"
AT = "2026-01-01T10:05:00Z"
HEAD = "[hvd +73.2s] hvd-worker-1: "
STACK = [
    f"{HEAD}rank 0 shows its Python stack:",
    f'{HEAD}  File "/horovod/code/3c5f/other.py", line 7 in f',
    f"{HEAD}rank 1 shows its Python stack:",
    f'{HEAD}  File "/usr/lib/python3.11/queue.py", line 171 in get',
    f'{HEAD}  File "/horovod/code/.packages/current/site/x.py", line 5 in y',
    f'{HEAD}  File "/horovod/code/3c5f/data/load.py", line 41 in next_batch',
    f'{HEAD}  File "/horovod/code/3c5f/train.py", line 88 in main',
]


def stalled(*later: Any, step_at: str = "10:04:44", text: str = TEXT) -> Release:
    """A run whose master has named a rank, and the events after that."""
    named = event(JOB, "Job", "Stalled", text, at=AT)
    told = {"step": 3, "time": f"2026-01-01T{step_at}Z"} if step_at else {}
    record = {"job": JOB, "progress": json.dumps(told)}
    return Release("hvd", [job()], [STATEFUL_SET], [MASTER, *WORKERS], [named, *later], record)


def test_a_stall_is_parsed_from_its_event() -> None:
    stall = parse_stall(f"{TEXT}; rank 2 on x uses no CPU for 20 s", AT)
    named = datetime.fromisoformat(AT).timestamp()
    assert stall == Stall(1, "hvd-worker-1", "has not joined grads_0", named - 15, named)
    without_host = parse_stall("rank 3 is stopped by a signal for 20 s", "")
    assert without_host
    assert (without_host.rank, without_host.host, without_host.since) == (3, "", 0.0)
    assert parse_stall("something else", AT) is None


def test_a_run_is_stalled_until_something_goes_on() -> None:
    assert RunView(stalled()).status.stall
    assert not RunView(stalled(step_at="10:05:20")).status.stall
    again = event(JOB, "Job", "Training", "", at="2026-01-01T10:06:00Z")
    assert not RunView(stalled(again)).status.stall
    assert not RunView(stalled(text="x")).status.stall


def test_without_steps_nobody_knows_whether_a_stall_has_lasted() -> None:
    now = datetime.fromisoformat("2026-01-01T10:10:45Z").timestamp()
    for step_at, expected in (("10:04:44", "stalled for 6 min: "), ("", "stalled 6 min ago (the")):
        lines = list(status_report(RunView(stalled(step_at=step_at)).status, "team", now))
        assert any(line.startswith(expected) for line in lines), lines


@pytest.mark.parametrize(
    ("rank", "lines", "place"),
    [
        (1, STACK, "data/load.py:41 in next_batch"),
        (0, STACK, "other.py:7 in f"),
        (2, STACK, ""),
        # Of no code that travelled: the image has it.
        (
            1,
            [*STACK[2:4], f'{HEAD}  File "/app/train.py", line 3 in main'],
            "/app/train.py:3 in main",
        ),
        (1, STACK[2:4], "/usr/lib/python3.11/queue.py:171 in get"),
        # A rank cannot write such a line: its own have no time of the master.
        (1, ["rank 1 shows its Python stack:", '  File "/x.py", line 1 in x'], ""),
        (1, ["[hvd +1s] x: rank 1 shows its Python stack:", "\x1b[2J" * 99], ""),
    ],
)
def test_the_place_is_the_innermost_line_of_the_users_code(
    rank: int, lines: list[str], place: str
) -> None:
    assert place_of(rank, lines) == place


def test_status_names_the_line_that_the_log_has(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    release = stalled()
    play(fake_cluster, job(), MASTER)
    fake_cluster.log(f"{JOB}-x", *STACK, end=True)
    fake_cluster.put("events", *release.events)
    fake_cluster.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": release.record})
    output = hvdchart("status", "hvd").output
    assert "has not joined grads_0, at data/load.py:41 in next_batch\n" in output
    fake_cluster.refusals["log get"] = (403, "no")
    assert "rank 1 on hvd-worker-1 has not joined grads_0\n" in hvdchart("status", "hvd").output
    document = json.loads(hvdchart("status", "hvd", "-o", "json").output)
    assert document["stall"]["rank"] == 1
