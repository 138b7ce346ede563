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


def test_list_shows_each_run_on_a_line_or_as_json(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    play(fake_cluster, FAILED, FAILED_MASTER)
    long = "a worker of the run was killed, because its container had used all of its memory " * 3
    labels = {**LABELS, "app.kubernetes.io/instance": "old"}
    old = {"metadata": {"name": "old-worker", "labels": labels}, "spec": {"replicas": 0}}
    fake_cluster.put("statefulsets", old)
    record = {"state": "Failed", "reason": long.strip()}
    fake_cluster.put("configmaps", {"metadata": {"name": "old-run"}, "data": record})
    fake_cluster.put("pods", {"metadata": {"name": "other", "labels": {"app": "other"}}})
    done = hvdchart("list")
    head, *lines = done.output.splitlines()
    assert head.split() == ["NAMESPACE", "NAME", "STATE", "WORKERS", "ATTEMPT", "REASON"]
    assert [line.split()[:5] for line in lines] == [
        ["team", "hvd", "failed", "2/2", "4/4"],
        ["team", "old", "failed", "0/0", "-"],
    ]
    assert lines[1].endswith(long.strip())
    documents = json.loads(hvdchart("list", "-A", "-o", "json").output)
    assert [(each["namespace"], each["name"]) for each in documents] == [
        ("team", "hvd"), ("team", "old"),
    ]  # fmt: skip


def test_status_of_a_finished_run_is_text_or_json(hvdchart: Command, finished: FakeCluster) -> None:
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
    fake_cluster.log(f"{JOB}-x", *(f"line {number}" for number in range(30)))
    done = hvdchart("status", "hvd")
    assert (done.code, done.errors) == (8, "hvdchart: run hvd failed\n")
    assert "why: boom\n" in done.output
    logged = [line for line in done.output.splitlines() if line.startswith("[")]
    assert logged == [f"[{JOB}-x] line {number}" for number in range(5, 30)]
    asked = [request.query for request in fake_cluster.requests if request.resource == "log"]
    assert [query.get("follow") for query in asked] == [None], "it is complete"
    json_only = hvdchart("status", "hvd", "-o", "json")
    assert json_only.code == 8
    assert json.loads(json_only.output)["reason"] == "boom"


def test_logs_without_following_print_all_pods_or_the_masters(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    play(fake_cluster, job(), MASTER)
    fake_cluster.log("hvd-worker-0", "worker")
    done = hvdchart("logs", "hvd", "--no-follow")
    assert sorted(done.output.splitlines()) == [
        f"[{JOB}-x] first", f"[{JOB}-x] last", "[hvd-worker-0] worker",
    ]  # fmt: skip
    master = hvdchart("logs", "hvd", "--no-follow", "--master")
    assert master.output == f"[{JOB}-x] first\n[{JOB}-x] last\n"


def test_logs_of_a_run_without_a_job_are_those_so_far(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    fake_cluster.put("pods", pod("hvd-worker-0", "worker", RUNNING))
    fake_cluster.log("hvd-worker-0", "worker")
    assert hvdchart("logs", "hvd").output == "[hvd-worker-0] worker\n"
    unknown = hvdchart("logs", "none")
    assert unknown.code == 7
    assert unknown.errors.startswith("hvdchart: no run none in namespace team: list all runs: ")


def test_events_are_printed_oldest_first(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    fake_cluster.put("events", event("hvd-worker-0", "Pod", "Pulled", "done", type="Normal"))
    done = hvdchart("events", "hvd")
    assert done.output == "2026-01-01T10:00:01Z Normal Pod/hvd-worker-0 Pulled: done\n"
    assert (done.code, done.errors) == (0, "")
    none = hvdchart("events", "other", "--namespace", "mine")
    assert (none.code, none.output) == (0, "")
    assert none.errors.startswith("no events about other in namespace mine; ")


TOLD = {"step": 120, "steps": 500, "loss": 0.41, "imagesPerSecond": 32.0, "secondsLeft": 240}


@pytest.fixture
def running(fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A run that goes on and tells its progress."""
    monkeypatch.setattr(watch, "SETTLE", 0.0)
    play(fake_cluster, job(mode="horovodrun"), MASTER)
    tell(fake_cluster, TOLD)
    return fake_cluster


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
    assert done.output.splitlines()[1] == (
        "progress: step 120 of 500, loss 0.41, 32 images/s, about 4 min left"
    )
    assert heads[-1] == "hvd: finished"
    assert done.output.splitlines()[-5].startswith("progress: step 500 of 500")
    assert "\x1b" not in done.output


def test_logs_of_a_rank_have_its_lines_alone(hvdchart: Command, running: FakeCluster) -> None:
    running.log(f"{JOB}-x", "[0]<stdout>:zero", "[1]<stdout>:one", "[1]<stderr>:two", end=True)
    done = hvdchart("logs", "hvd", "--rank", "1", "--no-follow")
    assert done.output == "[rank 1] one\n[rank 1] two\n"
    asked = [request.path for request in running.requests if request.resource == "log"]
    assert [path.split("/")[-2] for path in asked] == [f"{JOB}-x"], "the master's log has them"


def test_logs_since_a_time_are_asked_of_the_server(hvdchart: Command, running: FakeCluster) -> None:
    for more in (["--no-follow"], []):
        play(running, DONE, ENDED_MASTER)
        running.requests.clear()
        assert hvdchart("logs", "hvd", "--since", "5m", *more).code == 0
        asked = [request.query for request in running.requests if request.resource == "log"]
        assert {query["sinceSeconds"] for query in asked} == {"300"}
    assert hvdchart("logs", "hvd", "--since", "yesterday").code == 2
