"""list, status, logs and events, with a small API server."""

from __future__ import annotations

import json

import pytest
from yaml import safe_load as parse_yaml

from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import Command
from tests.unit.hvdchart.cli.test_run import FAILED, play
from tests.unit.hvdchart.runs import JOB, LABELS, MASTER, RUNNING, event, job, pod, terminated

pytestmark = pytest.mark.timeout(120)


def test_list_shows_each_run_on_a_line_or_as_json(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    play(fake_cluster, FAILED, pod(f"{JOB}-x", "master", terminated(1, "boom"), phase="Failed"))
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


def test_list_without_a_run_says_so(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    done = hvdchart("list")
    assert (done.code, done.output, done.errors) == (0, "", "no runs in namespace team\n")
    assert hvdchart("list", "-A").errors == "no runs in any namespace\n"


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
    play(fake_cluster, FAILED, pod(f"{JOB}-x", "master", terminated(1, "boom"), phase="Failed"))
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


def test_status_of_an_unknown_run_exits_with_7(
    hvdchart: Command, fake_cluster: FakeCluster
) -> None:
    done = hvdchart("status", "hvd", "-n", "mine")
    assert done.code == 7
    assert "no run hvd in namespace mine: this namespace has no objects of the rel" in done.errors


def test_logs_follow_a_run_to_its_end(hvdchart: Command, finished: FakeCluster) -> None:
    done = hvdchart("logs", "hvd", "--tail", "1")
    assert (done.code, done.output) == (0, f"[{JOB}-x] last\n")


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


@pytest.mark.slow
def test_log_lines_have_a_colour_for_each_pod_on_a_terminal(
    hvdchart: Command, fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"hvd-worker-{number}" for number in range(7)]
    fake_cluster.put("pods", *(pod(name, "worker", RUNNING) for name in names))
    for name in names:
        fake_cluster.log(name, "one", "two")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    lines = hvdchart("logs", "hvd").output.splitlines()
    codes = [line.partition("m[")[0].removeprefix("\x1b[") for line in lines]
    assert codes == [code for code in ["36", "32", "33", "35", "34", "91", "36"] for _ in range(2)]
    assert lines[0].endswith("[hvd-worker-0]\x1b[0m one")
    monkeypatch.setenv("NO_COLOR", "1")
    assert hvdchart("logs", "hvd").output.splitlines()[0] == "[hvd-worker-0] one"


def test_events_are_printed_oldest_first(hvdchart: Command, fake_cluster: FakeCluster) -> None:
    fake_cluster.put("events", event("hvd-worker-0", "Pod", "Pulled", "done", type="Normal"))
    done = hvdchart("events", "hvd")
    assert done.output == "2026-01-01T10:00:01Z Normal Pod/hvd-worker-0 Pulled: done\n"
    assert (done.code, done.errors) == (0, "")
    none = hvdchart("events", "other", "--namespace", "mine")
    assert (none.code, none.output) == (0, "")
    assert none.errors.startswith("no events about other in namespace mine; ")
