"""list, status, logs and events, with a small API server."""

from __future__ import annotations

import json

import pytest
from yaml import safe_load as parse_yaml

from hvdchart.run import watch
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command
from tests.unit.hvdchart.runs import (
    DONE,
    ENDED_MASTER,
    FAILED,
    FAILED_MASTER,
    JOB,
    LABELS,
    MASTER,
    RUNNING,
    event,
    job,
    meanwhile,
    play,
    pod,
    tell,
    terminated,
)

pytestmark = pytest.mark.timeout(120)
TOLD = {"step": 120, "steps": 500, "loss": 0.41, "imagesPerSecond": 32.0, "secondsLeft": 240}


@pytest.fixture
def running(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A run that goes on and tells its progress."""
    monkeypatch.setattr(watch, "SETTLE", 0.0)
    play(fake_cluster, job(mode="horovodrun"), MASTER)
    tell(fake_cluster, TOLD)
    return fake_cluster


def test_list_shows_each_run_on_a_line_or_as_json(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    assert hvdchart("list").errors == "no runs in namespace team\n"
    play(fake_cluster, FAILED, FAILED_MASTER)
    long = "a worker of the run was killed, because its container had used all of its memory " * 3
    labels = {**LABELS, "app.kubernetes.io/instance": "old"}
    old = {"metadata": {"name": "old-worker", "labels": labels}, "spec": {"replicas": 0}}
    fake_cluster.put("statefulsets", old)
    record = {"state": "Failed", "reason": long.strip()}
    fake_cluster.put("configmaps", {"metadata": {"name": "old-run"}, "data": record})
    fake_cluster.put("pods", {"metadata": {"name": "other", "labels": {"app": "other"}}})
    head, *lines = hvdchart("list").output.splitlines()
    assert head.split() == ["NAMESPACE", "NAME", "STATE", "WORKERS", "ATTEMPT", "REASON"]
    assert [line.split()[:5] for line in lines] == [
        ["team", "hvd", "failed", "2/2", "4/4"],
        ["team", "old", "failed", "0/0", "-"],
    ]
    assert lines[1].endswith(long.strip())
    documents = json.loads(hvdchart("list", "-A", "-o", "json").output)
    assert [(each["namespace"], each["name"]) for each in documents] == [
        ("team", "hvd"),
        ("team", "old"),
    ]


def test_status_of_a_finished_run_is_text_or_data(hvdchart: Command, finished: FakeCluster) -> None:
    text = hvdchart("status", "hvd")
    assert (text.code, text.output.splitlines()[0]) == (0, "hvd: finished")
    assert "[" not in text.output, "no log of a run that did not fail"
    document = json.loads(hvdchart("status", "hvd", "-o", "json").output)
    assert (document["state"], document["job"], len(document["pods"])) == ("finished", JOB, 3)
    shown = hvdchart("status", "hvd", "-o", "yaml").output
    assert parse_yaml(shown) == document
    assert shown.startswith("---\n"), "--watch prints several"


def test_status_of_a_failed_run_has_the_end_of_its_last_log(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    play(fake_cluster, FAILED, FAILED_MASTER)
    older = pod(f"{JOB}-a", "master", terminated(1, "older", at="09:00:00"), phase="Failed")
    fake_cluster.put("pods", older)
    fake_cluster.log(f"{JOB}-x", *(f"line {number}" for number in range(29)))
    # Keras writes its progress bar again and again over the same line.
    fake_cluster.log(f"{JOB}-x", "".join(f"\r\x1b[1m{n}%\x1b[0m" for n in range(9)) + "\rline 29\r")
    done = hvdchart("status", "hvd")
    assert (done.code, done.errors) == (8, "hvdchart: run hvd failed\n")
    assert "why: boom\n" in done.output
    logged = [line for line in done.output.splitlines() if line.startswith("[")]
    assert logged == [f"[{JOB}-x] line {number}" for number in range(5, 30)]
    json_only = hvdchart("status", "hvd", "-o", "json")
    assert (json_only.code, json.loads(json_only.output)["reason"]) == (8, "boom")


def test_status_is_watched_until_the_run_ends(hvdchart: Command, running: FakeCluster) -> None:
    def end() -> None:
        # What a status reads last.
        running.wait_for("configmaps", "get")
        tell(running, {**TOLD, "step": 500})
        play(running, DONE, ENDED_MASTER)

    with meanwhile(end):
        done = hvdchart("status", "hvd", "--watch")
    assert (done.code, "\x1b" in done.output) == (0, False)
    first, *others = [part.splitlines() for part in done.output.split("hvd: ")[1:]]
    assert first[0].startswith("running")
    assert first[1] == "progress: step 120 of 500, loss 0.41, 32 images/s, about 4 min left"
    assert others[-1][0] == "finished"
    assert others[-1][1].startswith("progress: step 500 of 500")


def test_logs_are_of_all_pods_of_the_master_or_of_a_rank(
    hvdchart: Command, running: FakeCluster
) -> None:
    # A rank's own output is printed with its colours and its progress bars.
    running.log("hvd-worker-0", "\x1b[32mworker\x1b[0m")
    done = hvdchart("logs", "hvd", "--no-follow")
    assert sorted(done.output.splitlines()) == [
        f"[{JOB}-x] first",
        f"[{JOB}-x] last",
        "[hvd-worker-0] \x1b[32mworker\x1b[0m",
    ]
    master = hvdchart("logs", "hvd", "--no-follow", "--master")
    assert master.output == f"[{JOB}-x] first\n[{JOB}-x] last\n"
    running.log(f"{JOB}-x", "[0]<stdout>:zero", "[1]<stdout>:one", "[1]<stderr>:two", end=True)
    running.requests.clear()
    of_rank = hvdchart("logs", "hvd", "--rank", "1", "--no-follow")
    assert of_rank.output == "[rank 1] one\n[rank 1] two\n"
    asked = [request.path for request in running.requests if request.resource == "log"]
    assert [path.split("/")[-2] for path in asked] == [f"{JOB}-x"], "the master's log has them"
    running.put("jobs", job())
    assert "mpirun does not say which rank" in hvdchart("logs", "hvd", "--rank", "1").errors
    running.put("jobs", job(options=["--tag-output"]))
    assert "no rank 2: name one from 0 to 1" in hvdchart("logs", "hvd", "--rank", "2").errors


def test_logs_are_followed_to_the_end_or_read_where_no_job_is_left(
    hvdchart: Command, running: FakeCluster
) -> None:
    for more in (["--no-follow"], []):
        play(running, DONE, ENDED_MASTER)
        running.requests.clear()
        assert hvdchart("logs", "hvd", "--since", "5m", *more).code == 0
        asked = [request.query for request in running.requests if request.resource == "log"]
        assert {query["sinceSeconds"] for query in asked} == {"300"}
    running.remove("jobs", JOB)
    running.remove("pods", f"{JOB}-x")
    running.put("pods", pod("hvd-worker-0", "worker", RUNNING))
    running.log("hvd-worker-0", "one", "two")
    assert hvdchart("logs", "hvd", "--tail", "1").output == "[hvd-worker-0] two\n"


def test_events_are_printed_oldest_first(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    pulled = event("hvd-worker-0", "Pod", "Pulled", "done\n twice", type="Normal")
    # The master numbers its events of one second.
    numbered = (event("hvd", "Job", "X", f"{n}", name=f"hvd.2026010110000{n}") for n in (1, 0))
    fake_cluster.put("events", *numbered, event("hvdx", "Pod", "X", ""), {**pulled, "count": 2})
    done = hvdchart("events", "hvd")
    assert done.output.splitlines() == [
        "2026-01-01T10:00:01Z Normal Pod/hvd-worker-0 Pulled: done twice (2 times)",
        "2026-01-01T10:00:01Z Warning Job/hvd X: 0",
        "2026-01-01T10:00:01Z Warning Job/hvd X: 1",
    ]
    assert (done.code, done.errors) == (0, "")
    none = hvdchart("events", "other", "--namespace", "mine")
    assert (none.code, none.output) == (0, "")
    assert none.errors.startswith("no events about other in namespace mine; ")
