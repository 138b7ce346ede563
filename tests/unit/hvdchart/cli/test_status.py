"""list, status, logs and events, with a small API server."""

from __future__ import annotations

import json

import pytest
from yaml import safe_load as parse_yaml

from tests.support.fakes import faults
from tests.support.fakes.cluster import FakeCluster
from tests.unit.hvdchart.command import Command
from tests.unit.hvdchart.objects import (
    DONE,
    ENDED_MASTER,
    FAILED,
    FAILED_MASTER,
    JOB,
    LABELS,
    MASTER,
    RUNNING,
    STATEFUL_SET,
    event,
    job,
    pod,
    terminated,
)
from tests.unit.hvdchart.played_runs import play_run, report_progress

pytestmark = pytest.mark.timeout(120)
REPORTED = {"step": 120, "steps": 500, "loss": 0.41, "samplesPerSecond": 32.0, "secondsLeft": 240}


@pytest.fixture
def running(fake_cluster: FakeCluster) -> FakeCluster:
    """A run that continues and reports its progress."""
    play_run(fake_cluster, job(options=["--tag-output"]), MASTER)
    report_progress(fake_cluster, REPORTED)
    return fake_cluster


REASON = "a worker of the run was killed, because its container had used all of its memory"


@pytest.fixture
def two_runs(fake_cluster: FakeCluster) -> FakeCluster:
    """A failed run, one of which only its workers and its record are left, and a foreign pod."""
    play_run(fake_cluster, FAILED, FAILED_MASTER)
    labels = {**LABELS, "app.kubernetes.io/instance": "old"}
    old = {"metadata": {"name": "old-worker", "labels": labels}, "spec": {"replicas": 0}}
    fake_cluster.put("statefulsets", old)
    record = {"state": "Failed", "reason": " ".join([REASON] * 3)}
    fake_cluster.put("configmaps", {"metadata": {"name": "old-run"}, "data": record})
    fake_cluster.put("pods", {"metadata": {"name": "other", "labels": {"app": "other"}}})
    return fake_cluster


@pytest.fixture
def failed(fake_cluster: FakeCluster) -> FakeCluster:
    """A run whose last attempt has failed, after an earlier one."""
    play_run(fake_cluster, FAILED, FAILED_MASTER)
    older = pod(f"{JOB}-a", "master", terminated(1, "older", at="09:00:00"), phase="Failed")
    fake_cluster.put("pods", older)
    return fake_cluster


def test_list_says_that_there_are_no_runs(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    fake_cluster.put("namespaces", {"metadata": {"name": "team"}})
    assert hvdchart("list").errors == "no runs in namespace team\n"


def test_list_of_a_namespace_that_there_is_not_fails(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    done = hvdchart("list")
    assert done.code == 7
    assert "namespace team" in done.errors


def test_list_has_the_age_the_duration_and_the_progress(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    ended = {**DONE["status"], "completionTime": "2026-01-01T10:04:00Z"}
    play_run(fake_cluster, {**DONE, "status": ended}, ENDED_MASTER)
    report_progress(fake_cluster, {"step": 7, "steps": 9, "loss": 0.25})
    head, line = hvdchart("list").output.splitlines()
    shown = line[head.index("DURATION") :].split()
    assert shown[:4] == ["4", "min", "7/9", "0.25"]


def test_all_namespaces_are_those_that_one_may_read(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    play_run(fake_cluster, DONE, ENDED_MASTER)
    # The list of all namespaces is refused, and then that of their names.
    fake_cluster.fail("GET", "batch/jobs", faults.status(403))
    fake_cluster.fail("GET", "core/namespaces", faults.status(403))
    done = hvdchart("list", "--all-namespaces")
    assert done.code == 0, done.errors
    assert "team" in done.output, done.errors
    assert "all namespaces" in done.errors


def test_list_shows_each_run_on_a_line(hvdchart: Command, two_runs: FakeCluster) -> None:
    head, *lines = hvdchart("list").output.splitlines()
    assert head.split()[:5] == ["NAMESPACE", "NAME", "STATE", "WORKERS", "ATTEMPT"]
    assert [line.split()[:5] for line in lines] == [
        ["team", "hvd", "failed", "2/2", "4/4"],
        ["team", "old", "failed", "0/0", "-"],
    ]


def test_objects_with_another_name_belong_to_the_run(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    """With fullnameOverride, which a `helm install` without hvdchart may have set."""
    fake_cluster.put("jobs", job(name="lab-master-1a2b3c4d"))
    record = {"job": "lab-master-1a2b3c4d", "state": "Running", "progress": '{"step": 7}'}
    fake_cluster.put("configmaps", {"metadata": {"name": "lab-run"}, "data": record})
    about = {"kind": "Job", "name": "lab-master-1a2b3c4d"}
    event = {"metadata": {"name": "one"}, "involvedObject": about, "message": "it was seen"}
    fake_cluster.put("events", event)
    assert "step 7" in hvdchart("status", "hvd").output
    assert "it was seen" in hvdchart("events", "hvd").output


def test_list_names_the_command_that_removes_workers_without_a_master(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    """A quota, for instance, has refused the Job."""
    fake_cluster.put("statefulsets", STATEFUL_SET)
    done = hvdchart("list")
    assert "hvdchart undeploy hvd -n team" in done.errors
    record = {"state": "Failed", "reason": REASON}
    fake_cluster.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": record})
    assert "undeploy" not in hvdchart("list").errors, "they stay after a run that has failed"


def test_list_shows_the_runs_of_all_namespaces_as_json(
    hvdchart: Command, two_runs: FakeCluster
) -> None:
    documents = json.loads(hvdchart("list", "-A", "-o", "json").output)
    assert [(run["namespace"], run["name"]) for run in documents] == [
        ("team", "hvd"),
        ("team", "old"),
    ]


def test_status_of_a_finished_run_has_no_log(hvdchart: Command, finished: FakeCluster) -> None:
    text = hvdchart("status", "hvd")
    assert (text.code, text.output.splitlines()[0]) == (0, "hvd: finished")
    assert "[" not in text.output


def test_without_a_name_the_only_run_is_meant(hvdchart: Command, running: FakeCluster) -> None:
    assert "step 120 of 500" in hvdchart("status").output
    assert hvdchart("logs", "--no-follow", "--master").output == "first\nlast\n"


def test_without_a_name_the_only_unfinished_run_is_meant(
    hvdchart: Command, two_runs: FakeCluster
) -> None:
    goes_on = {**job(name="third-1"), "status": {"active": 1}}
    goes_on["metadata"]["labels"] = {**LABELS, "app.kubernetes.io/instance": "third"}
    two_runs.put("jobs", goes_on)
    done = hvdchart("status", "-o", "json")
    assert json.loads(done.output)["name"] == "third", done.errors


def test_without_a_name_several_runs_are_named(hvdchart: Command, two_runs: FakeCluster) -> None:
    done = hvdchart("status")
    assert done.code == 7
    assert "hvd, old" in done.errors


def test_without_a_name_and_a_run_no_run_is_reported(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    done = hvdchart("watch")
    assert done.code == 7
    assert "namespace team" in done.errors


def test_status_is_data_as_json(hvdchart: Command, finished: FakeCluster) -> None:
    document = json.loads(hvdchart("status", "hvd", "-o", "json").output)
    assert (document["state"], document["job"], len(document["pods"])) == ("finished", JOB, 3)


def test_status_is_the_same_data_as_yaml(hvdchart: Command, finished: FakeCluster) -> None:
    """It begins with ---, so that several can be written to one file."""
    shown = hvdchart("status", "hvd", "-o", "yaml").output
    document = json.loads(hvdchart("status", "hvd", "-o", "json").output)
    assert parse_yaml(shown) == document
    assert shown.startswith("---\n")


def test_status_of_a_failed_run_says_why(hvdchart: Command, failed: FakeCluster) -> None:
    done = hvdchart("status", "hvd")
    assert (done.code, done.errors) == (8, "hvdchart: run hvd failed\n")
    assert "why: boom\n" in done.output


def test_status_of_a_failed_run_has_the_end_of_its_last_log(
    hvdchart: Command, failed: FakeCluster
) -> None:
    failed.log(f"{JOB}-x", *(f"line {number}" for number in range(29)))
    # Keras writes its progress bar again and again over the same line.
    failed.log(f"{JOB}-x", "".join(f"\r\x1b[1m{n}%\x1b[0m" for n in range(9)) + "\rline 29\r")
    lines = hvdchart("status", "hvd").output.splitlines()
    assert lines[-25:] == [f"line {number}" for number in range(5, 30)]
    assert "line 4" not in lines


def test_status_of_a_failed_run_has_the_lines_of_the_rank_that_ended_it(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    """Other ranks have lost their peer, and launchers put boxes around that."""
    failed = job(("Failed", "BackoffLimitExceeded", "limit"), options=["--tag-output"])
    reason = "rank 1 on hvd-worker-1: ValueError: no data, train.py:8"
    play_run(fake_cluster, failed, pod(f"{JOB}-x", "master", terminated(1, reason), phase="Failed"))
    fake_cluster.log(
        f"{JOB}-x",
        "[1,1]<stderr>:ValueError: no data",
        "[1,0]<stderr>:UnknownError: Horovod has been shut down",
        "mpirun noticed that process rank 1 has exited",
    )
    lines = hvdchart("status", "hvd").output.splitlines()
    assert lines[-2:] == ["next: hvdchart logs hvd -n team --rank 1", "[1] ValueError: no data"]


def test_status_shows_no_lines_of_a_rank_if_they_are_not_tagged(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    reason = "rank 1 on hvd-worker-1: ValueError: no data, train.py:8"
    play_run(fake_cluster, FAILED, pod(f"{JOB}-x", "master", terminated(1, reason), phase="Failed"))
    lines = hvdchart("status", "hvd").output.splitlines()
    assert lines[-2:] == ["first", "last"]
    assert not any("--rank" in line for line in lines)


def test_status_of_a_failed_run_is_json_alone(hvdchart: Command, failed: FakeCluster) -> None:
    done = hvdchart("status", "hvd", "-o", "json")
    assert (done.code, json.loads(done.output)["reason"]) == (8, "boom")


def test_logs_are_of_all_pods(hvdchart: Command, running: FakeCluster) -> None:
    """A rank's own output is printed with its colours and its progress bars."""
    running.log("hvd-worker-0", "\x1b[32mworker\x1b[0m")
    done = hvdchart("logs", "hvd", "--no-follow")
    assert sorted(done.output.splitlines()) == [
        "[worker-0] \x1b[32mworker\x1b[0m",
        "first",
        "last",
    ]


def test_raw_logs_name_their_pods_and_leave_out_nothing(
    hvdchart: Command, running: FakeCluster
) -> None:
    running.log(f"{JOB}-x", "[1]<stdout>:one", "oneDNN custom operations are on", end=True)
    done = hvdchart("logs", "hvd", "--no-follow", "--master")
    assert done.output.endswith("\n[1] one\n")
    assert "--raw" in done.errors
    raw = hvdchart("logs", "hvd", "--no-follow", "--master", "--raw")
    lines = raw.output.splitlines()
    assert lines[-2:] == [
        f"[{JOB}-x] [1]<stdout>:one",
        f"[{JOB}-x] oneDNN custom operations are on",
    ]


def test_logs_of_a_rank_are_read_from_the_masters(hvdchart: Command, running: FakeCluster) -> None:
    running.log(f"{JOB}-x", "[0]<stdout>:zero", "[1]<stdout>:one", "[1]<stderr>:two", end=True)
    done = hvdchart("logs", "hvd", "--rank", "1", "--no-follow")
    assert done.output == "[rank 1] one\n[rank 1] two\n"
    asked = [request.path for request in running.requests if request.resource == "log"]
    assert [path.split("/")[-2] for path in asked] == [f"{JOB}-x"]


def test_logs_of_a_rank_need_an_option_of_mpirun(hvdchart: Command, running: FakeCluster) -> None:
    running.put("jobs", job())
    assert "HVD_TAG_OUTPUT" in hvdchart("logs", "hvd", "--rank", "1").errors


def test_logs_of_an_unknown_rank_are_refused(hvdchart: Command, running: FakeCluster) -> None:
    running.put("jobs", job(options=["--tag-output"]))
    errors = hvdchart("logs", "hvd", "--rank", "2").errors
    assert "rank 2" in errors
    assert "0 to 1" in errors


@pytest.mark.parametrize("more", [["--no-follow"], []], ids=["read", "followed"])
def test_logs_are_those_since_a_time(
    hvdchart: Command, running: FakeCluster, more: list[str]
) -> None:
    play_run(running, DONE, ENDED_MASTER)
    assert hvdchart("logs", "hvd", "--since", "5m", *more).code == 0
    asked = [request.query for request in running.requests if request.resource == "log"]
    assert {query["sinceSeconds"] for query in asked} == {"300"}


def test_logs_are_read_where_no_job_is_left(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    fake_cluster.put("pods", pod("hvd-worker-0", "worker", RUNNING))
    fake_cluster.log("hvd-worker-0", "one", "two")
    assert hvdchart("logs", "hvd", "--tail", "1").output == "[worker-0] two\n"


def test_objects_of_another_prefix_are_found_where_no_job_is_left(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    """As with `fullnameOverride: lab`."""
    metadata = {**STATEFUL_SET["metadata"], "name": "lab-worker"}
    workers = {"metadata": metadata, "spec": {"replicas": 0, "serviceName": "lab"}}
    fake_cluster.put("statefulsets", workers)
    record = {"job": "lab-master-1a2b3c4d", "state": "Finished"}
    fake_cluster.put("configmaps", {"metadata": {"name": "lab-run"}, "data": record})
    fake_cluster.put("events", event("lab-worker-0", "Pod", "X", ""))
    fake_cluster.put("pods", pod("lab-worker-0", "worker", RUNNING))
    fake_cluster.log("lab-worker-0", "one")
    assert json.loads(hvdchart("status", "hvd", "-o", "json").output)["state"] == "finished"
    assert json.loads(hvdchart("list", "-o", "json").output)[0]["state"] == "finished"
    assert "Pod/lab-worker-0 X" in hvdchart("events", "hvd").output
    assert hvdchart("logs", "hvd").output == "[worker-0] one\n"


def test_events_are_printed_oldest_first(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    pulled = event("hvd-worker-0", "Pod", "Pulled", "done\n twice", type="Normal")
    # The master numbers its events of one second.
    numbered = (
        event("hvd", "Job", "X", f"{number}", name=f"hvd.2026010110000{number}")
        for number in (1, 0)
    )
    fake_cluster.put("events", *numbered, event("hvdx", "Pod", "X", ""), {**pulled, "count": 2})
    done = hvdchart("events", "hvd")
    assert done.output.splitlines() == [
        "2026-01-01T10:00:01Z Normal Pod/hvd-worker-0 Pulled: done twice (2 times)",
        "2026-01-01T10:00:01Z Warning Job/hvd X: 0",
        "2026-01-01T10:00:01Z Warning Job/hvd X: 1",
    ]
    assert (done.code, done.errors) == (0, "")


def test_events_says_that_there_are_none(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    play_run(fake_cluster, DONE, ENDED_MASTER)
    done = hvdchart("events", "hvd")
    assert (done.code, done.output) == (0, "")
    assert done.errors.startswith("no events about hvd in namespace team")


def test_events_of_a_run_that_there_is_not_fail(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    assert hvdchart("events", "other").code == 7
