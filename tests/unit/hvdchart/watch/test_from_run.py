"""The view of a run, from what was read of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_pods.shared.run_events import RunEvent
from hvdchart.run.inside.top import parse_probe
from hvdchart.run.state.release import Release
from hvdchart.run.state.view import RunView
from hvdchart.watch.from_run import MAX_LINES, MAX_MARKS, MAX_ROWS, build_view
from hvdchart.watch.view_model import Mark, View
from tests.unit.hvdchart.watch import sample
from tests.unit.hvdchart.watch.sample import BEGAN, losses

EVIL = "\x1b]0;owned\x07\x1b[2J\u202e<script>alert(1)</script>\n"


def kinds(view: View) -> list[str]:
    return [mark.kind for mark in view.marks if mark.kind != "stage"]


def test_a_run_that_trains_has_its_progress_and_its_losses() -> None:
    view = sample.training_view()
    assert view.progress
    assert (view.state, view.progress.step, view.progress.steps) == ("running", 3140, 5000)
    assert (view.started, view.seconds, view.attempt) == (BEGAN, 1102, 2)
    assert view.losses[0] == (20, losses(20)[0][1])
    assert view.losses[-1][0] == 3140


def test_each_rank_has_a_row_with_what_its_pod_uses() -> None:
    rows = sample.training_view().rows
    assert [row.rank for row in rows] == [0, 1, 2, 3, None], "the master has no rank"
    assert (rows[1].pod, rows[1].node, rows[1].state) == ("hvd-worker-1", "node-b", "Running")
    assert (rows[1].step, rows[1].rate) == (3140, 100.5)
    assert rows[1].memory == 5430 << 20
    assert rows[1].cpus == pytest.approx(3.68)


def test_a_row_has_the_use_of_the_gpus_of_its_pod() -> None:
    *ranks, master = sample.gpus_view().rows
    assert {row.gpu_shares for row in ranks} == {(0.4, 0.93)}, "the lowest and the highest"
    assert {row.gpu_memory for row in ranks} == {(62 << 30, 80 << 30)}, "that of the fullest one"
    assert (master.gpu_shares, master.gpu_memory) == (None, None)


def test_a_use_of_gpus_that_cannot_be_is_left_out() -> None:
    used = sample.usages_with_gpus(9)
    used[0].gpus["0"] = {"utilization_ratio": 1e9, "memory_used_bytes": 9e99, "memory_bytes": 1.0}
    row = build_view(RunView(sample.training()), "team", BEGAN, usages=used).rows[0]
    assert (row.gpu_shares, row.gpu_memory) == (None, None)


def test_the_usage_of_a_pod_with_several_ranks_is_that_of_its_first_row() -> None:
    release = sample.training()
    variable = release.jobs[0]["spec"]["template"]["spec"]["containers"][0]["env"][0]
    described = json.loads(variable["value"])
    described["groups"][0]["slots"] = 2
    variable["value"] = json.dumps(described)
    view = build_view(RunView(release), "team", BEGAN, usages=sample.usages(9))
    assert [row.pod for row in view.rows[:3]] == ["hvd-worker-0", "hvd-worker-0", "hvd-worker-1"]
    assert [row.cpus is None for row in view.rows[:3]] == [False, True, False]


def test_mark_of_an_attempt_has_its_number_once_without_earlier_events() -> None:
    """Kubernetes deletes events after an hour."""
    release = sample.training()
    # From the beginning of the second attempt on.
    later = sample.EVENTS[-3:]
    view = build_view(RunView(replace(release, events=later)), "team", BEGAN + 1102)
    (mark,) = (mark for mark in view.marks if mark.kind == "attempt")
    assert mark.text.count("attempt 2") == 1
    assert "attempt 1" not in mark.text


@pytest.mark.parametrize(("uid", "is_own"), [("uid-old", False), ("uid-new", True)])
def test_event_of_an_earlier_job_of_the_name_is_no_mark(uid: str, is_own: bool) -> None:
    release = sample.training()
    release.jobs[0]["metadata"]["uid"] = "uid-new"
    training = sample.happened(500, "Training", "attempt 7: mpirun starts 4 ranks")
    training["involvedObject"]["uid"] = uid
    training["type"] = "Normal"
    events = [*release.events, training]
    view = build_view(RunView(replace(release, events=events)), "team", BEGAN + 1102)
    assert any("attempt 7" in mark.text for mark in view.marks) is is_own


def test_attempts_and_faults_are_marks_on_the_time_line() -> None:
    view = sample.training_view()
    # The loss of a worker is told twice by the master, and is one mark.
    assert kinds(view) == ["warning", "attempt", "fault", "attempt"]
    assert [(span.period, span.attempt) for span in view.spans] == [
        ("waiting", 0),
        ("training", 1),
        ("lost", 1),
        ("training", 2),
    ]
    assert view.spans[0].begin == BEGAN
    assert view.spans[-1].end == view.now


@pytest.mark.parametrize("event", RunEvent)
def test_each_event_of_the_master_is_a_mark(event: RunEvent) -> None:
    release = sample.training()
    release.events.append(sample.happened(900, event.reason, "said"))
    view = build_view(RunView(release), "team", BEGAN + 1102)
    assert Mark(BEGAN + 900, event.kind, "said") in view.marks


def test_a_run_of_a_script_is_described_in_options() -> None:
    release = sample.training()
    template = release.jobs[0]["spec"]["template"]
    template["metadata"] = {"annotations": {"hvdchart/command": "run"}}
    text = "the loss is NaN: `launch.failOnNaN=true` ends such a run"
    release.events.append(sample.happened(60, "NotANumber", text))
    lines = [f"[hvd +1.0s] warning: {text}", "`launch.failOnNaN` of the script's own"]
    view = build_view(RunView(release), "team", BEGAN + 90, lines=lines)
    texts = [mark.text for mark in view.marks if "NaN" in mark.text]
    assert "--fail-on-nan" in texts[0]
    assert "--fail-on-nan" in view.log[0]
    assert view.log[1] == lines[1]


def test_the_log_is_as_logs_shows_it() -> None:
    edge = "-" * 70
    box = [edge, "mpirun noticed that process rank 1 exited on signal 9 (Killed).", edge]
    lines = [*box, "[1,1]<stderr>:Epoch [1,1]<stderr>:1", "x" * 9000]
    view = build_view(RunView(sample.training()), "team", BEGAN + 90, lines=lines)
    assert view.log[0] == "[1] Epoch 1"
    assert len(view.log[1]) < 1000


def test_a_stall_names_the_line_of_the_script() -> None:
    view = sample.stalled_view()
    assert view.stall
    assert (view.stall.rank, view.stall.worker) == (1, "hvd-worker-1")
    assert view.stall.place == "train.py:41 in next_batch"
    assert view.stall.since == BEGAN + 1105
    assert [row.state for row in view.rows[:3]] == ["Running", "Stalled", "Running"]


def test_a_finished_run_is_shown_from_its_record() -> None:
    view = sample.finished_view()
    assert (view.state, view.over, view.seconds) == ("finished", True, 1760)
    assert view.losses[-1][0] == 5000
    assert kinds(view)[-1] == "end"
    assert {row.state for row in view.rows} == {"Ended"}
    assert view.spans[-1].end == BEGAN + 1760


def test_a_run_whose_job_and_events_are_gone_has_its_record_left() -> None:
    whole = sample.finished()
    view = build_view(RunView(replace(whole, jobs=[], events=[])), "team", BEGAN + 9000)
    assert (view.state, view.rows) == ("finished", ())
    assert view.losses[-1][0] == 5000
    assert [mark.kind for mark in view.marks] == ["end"]


def test_a_run_that_ends_is_finishing_and_not_without_workers() -> None:
    whole = sample.finished()
    whole.jobs[0]["status"]["conditions"] = []
    view = build_view(RunView(whole), "team", BEGAN + 1751)
    assert (view.state, view.over) == ("finishing", False)


def test_what_a_stranger_writes_controls_no_terminal_and_has_a_limit() -> None:
    release = sample.training()
    for number in range(MAX_MARKS + 50):
        failed = sample.happened(500 + number, "Failed", f"{number} {EVIL * 9}")
        release.events.append(failed)
    lines = [f"{EVIL}{n}" for n in range(MAX_LINES + 50)]
    view = build_view(RunView(release), "team", BEGAN + 9000, lines=lines, usage_problem=EVIL)
    texts = [*view.log, *(mark.text for mark in view.marks), view.reason, view.usage_problem]
    assert all(text.isprintable() for text in texts)
    assert (len(view.log), len(view.marks)) == (MAX_LINES, MAX_MARKS)
    assert view.log[-1].endswith(str(MAX_LINES + 49))


def test_of_many_ranks_the_first_have_rows() -> None:
    release = sample.training()
    variable = release.jobs[0]["spec"]["template"]["spec"]["containers"][0]["env"][0]
    variable["value"] = variable["value"].replace('"slots": 1', '"slots": 100')
    view = build_view(RunView(release), "team", BEGAN)
    assert (len(view.rows), view.more_rows) == (MAX_ROWS, 401 - MAX_ROWS)


anything = st.none() | st.integers() | st.floats() | st.sampled_from([EVIL, 10**400, "9" * 500])


@pytest.mark.fuzz
@given(
    losses=anything | st.lists(anything | st.lists(anything, max_size=3), max_size=5),
    rank=st.text(max_size=30),
    at=st.sampled_from(["", "x", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", EVIL]),
)
def test_any_record_and_any_answer_of_a_pod_make_a_view(losses: Any, rank: str, at: str) -> None:
    run = sample.training()
    progress = json.dumps({"step": 3, "losses": losses, "time": at})
    record = {**run.record, "progress": progress, "renewed": at, "time": at}
    event = {**sample.happened(1, "Failed", EVIL), "lastTimestamp": at}
    used = parse_probe("hvd-worker-0", f"0:hvdchart_step {rank}\n0:hvdchart_step 1e999\n")
    release = Release("hvd", run.jobs, run.stateful_sets, run.pods, [event], record)
    view = build_view(RunView(release), "team", BEGAN, usages=[used])
    json.dumps(view.document(), allow_nan=False)
    assert view.losses == tuple(sorted(view.losses))
