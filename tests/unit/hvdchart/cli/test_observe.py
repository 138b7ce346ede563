"""status --watch, logs --rank and --since, events --follow: with a small API server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hvdchart.chart_files import chart_dir
from hvdchart.run import watch
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command
from tests.unit.hvdchart.cli.test_run import DONE, ENDED_MASTER, FAILED, play
from tests.unit.hvdchart.runs import JOB, MASTER, event, job, pod, terminated

ROOT = chart_dir().parents[1]
pytestmark = pytest.mark.timeout(120)
TOLD = {"step": 120, "steps": 500, "loss": 0.41, "imagesPerSecond": 32.0, "secondsLeft": 240}


@pytest.fixture
def running(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A run that goes on and tells its progress."""
    monkeypatch.setattr(watch, "SETTLE", 0.0)
    play(fake_cluster, job(mode="horovodrun"), MASTER)
    tell(fake_cluster, TOLD)
    return fake_cluster


def tell(cluster: FakeCluster, told: object) -> None:
    data = {"job": JOB, "state": "Running", "progress": json.dumps(told)}
    cluster.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": data})


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


def test_status_has_the_progress(hvdchart: Command, running: FakeCluster) -> None:
    text = hvdchart("status", "hvd").output
    assert "progress: step 120 of 500, loss 0.41, 32 images/s, about 4 min left\n" in text
    document = json.loads(hvdchart("status", "hvd", "-o", "json").output)
    assert (document["progress"]["step"], document["progress"]["seconds_left"]) == (120, 240)


def test_status_of_another_run_than_the_record_has_no_progress(
    hvdchart: Command, running: FakeCluster
) -> None:
    running.put("jobs", job(name="hvd-master-2", created="2026-01-02T10:00:00Z"))
    assert "progress" not in hvdchart("status", "hvd").output


def test_status_is_watched_until_the_run_ends(hvdchart: Command, running: FakeCluster) -> None:
    def end() -> None:
        # What a status reads last.
        running.wait_for("configmaps", "get")
        tell(running, {**TOLD, "step": 500})
        play(running, DONE, ENDED_MASTER)

    with meanwhile(end):
        done = hvdchart("status", "hvd", "--watch")
    assert done.code == 0
    heads = [line for line in done.output.splitlines() if line.startswith("hvd: ")]
    assert heads[0].startswith("hvd: running")
    assert heads[-1] == "hvd: finished"
    assert done.output.splitlines()[-5].startswith("progress: step 500 of 500")
    assert "\x1b" not in done.output


@pytest.mark.parametrize(("output", "is_cleared"), [("text", True), ("json", False)])
def test_watched_status_replaces_the_one_before_on_a_terminal(
    hvdchart: Command,
    running: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    output: str,
    is_cleared: bool,
) -> None:
    play(running, DONE, ENDED_MASTER)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    done = hvdchart("status", "hvd", "--watch", "-o", output)
    assert done.code == 0
    assert done.output.startswith("\x1b[H\x1b[J") is is_cleared


def test_status_that_does_not_change_is_printed_once(
    hvdchart: Command, running: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "READ_EVERY", 0.01)

    def end() -> None:
        running.wait_for("jobs", "watch")
        running.remove("configmaps", "hvd-run")
        play(running, DONE, ENDED_MASTER)

    with meanwhile(end):
        done = hvdchart("status", "hvd", "--watch")
    shown = done.output.split("hvd: ")
    assert len(shown) == len(set(shown))


def test_logs_of_a_rank_have_its_lines_alone(hvdchart: Command, running: FakeCluster) -> None:
    running.log(f"{JOB}-x", "[0]<stdout>:zero", "[1]<stdout>:one", "[1]<stderr>:two", end=True)
    done = hvdchart("logs", "hvd", "--rank", "1", "--no-follow")
    assert done.output == "[rank 1] one\n[rank 1] two\n"
    asked = [request.path for request in running.requests if request.resource == "log"]
    assert [path.split("/")[-2] for path in asked] == [f"{JOB}-x"], "the master's log has them"


def test_logs_of_a_rank_that_the_launcher_does_not_name_are_refused(
    hvdchart: Command, running: FakeCluster
) -> None:
    running.put("jobs", job())
    done = hvdchart("logs", "hvd", "--rank", "1")
    assert (done.code, done.output) == (7, "")
    assert "mpirun does not say which rank printed a line: deploy with" in done.errors


def test_logs_since_a_time_are_asked_of_the_server(hvdchart: Command, running: FakeCluster) -> None:
    for more in (["--no-follow"], []):
        play(running, DONE, ENDED_MASTER)
        running.requests.clear()
        assert hvdchart("logs", "hvd", "--since", "5m", *more).code == 0
        asked = [request.query for request in running.requests if request.resource == "log"]
        assert {query["sinceSeconds"] for query in asked} == {"300"}
    assert hvdchart("logs", "hvd", "--since", "yesterday").code == 2


@pytest.mark.slow
def test_a_line_is_printed_while_the_log_goes_on(running: FakeCluster) -> None:
    """The server holds the connection open: nothing waits for more to come."""
    running.put("pods", MASTER)
    running.log("hvd-worker-0", "from the worker")
    command = [sys.executable, "-m", "hvdchart", "logs", "hvd"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            shown = {process.stdout.readline() for _ in range(3)}
            assert "[hvd-worker-0] from the worker\n" in shown
            running.log("hvd-worker-0", "and one more")
            assert process.stdout.readline() == "[hvd-worker-0] and one more\n"
        finally:
            process.kill()


def test_events_are_followed_in_order_until_the_run_ends(
    hvdchart: Command, running: FakeCluster
) -> None:
    running.put("events", event(JOB, "Job", "Started", "first", type="Normal", at="10"))

    def end() -> None:
        running.wait_for("events", "watch")
        running.put("events", event("other", "Pod", "Pulled", "of another run"))
        running.put("events", event(JOB, "Job", "Training", "second", type="Normal", at="11"))
        running.put("events", event(JOB, "Job", "Finished", "third", type="Normal", at="12"))
        play(running, DONE, ENDED_MASTER)

    with meanwhile(end):
        done = hvdchart("events", "hvd", "-f")
    assert done.code == 0
    assert [line.split()[-1] for line in done.output.splitlines()] == ["first", "second", "third"]
    assert done.errors == ""


def test_events_that_cannot_be_watched_are_an_error(
    hvdchart: Command, running: FakeCluster
) -> None:
    running.refusals["events watch"] = (403, "no right")
    done = hvdchart("events", "hvd", "-f")
    assert done.code == 7
    assert "cannot watch events in namespace team: you are not allowed to" in done.errors


def test_status_of_a_failed_run_asks_for_25_lines_of_its_last_log(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    failed = pod(f"{JOB}-x", "master", terminated(1, "boom"), phase="Failed")
    play(fake_cluster, FAILED, failed)
    assert hvdchart("status", "hvd").code == 8
    assert fake_cluster.wait_for("log", "get").query["tailLines"] == "25"
