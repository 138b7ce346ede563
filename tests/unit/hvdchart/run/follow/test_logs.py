"""Following a run's logs, over real HTTP from a small API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hvd_pods.shared.record import LEASE_KEPT
from hvdchart.run.follow.changes import Pauses
from hvdchart.run.follow.logs import LogLine, follow_logs
from hvdchart.run.kube.cluster import Cluster
from tests.support.fakes import faults
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.faults import Failure
from tests.support.fakes.server import Handler
from tests.unit.hvdchart.objects import CREATING, JOB, RUNNING, event, job, pod, terminated
from tests.unit.hvdchart.played_runs import meanwhile

pytestmark = pytest.mark.timeout(120)

MASTER = pod("hvd-master-1-a", "master", RUNNING)
WORKER = pod("hvd-worker-0", "worker", RUNNING)
DONE = job(("Complete", "", ""))
PAUSES = Pauses(retry_interval_seconds=0.01)
IMPATIENT = PAUSES._replace(retry_timeout_seconds=0.1, read_interval_seconds=0.2)
LATER = "2026-01-01T10:00:06.5Z"


@pytest.fixture
def training(fake_cluster: FakeCluster) -> FakeCluster:
    """A run that trains: a master and a worker, whose logs go on."""
    fake_cluster.put("jobs", job())
    fake_cluster.put("pods", MASTER, WORKER)
    fake_cluster.log("hvd-master-1-a", "m1")
    fake_cluster.log("hvd-worker-0", "w1")
    return fake_cluster


def finish(cluster: FakeCluster, *lines: str) -> None:
    """The run completes; the worker's log continues."""
    cluster.log("hvd-master-1-a", *lines, end=True)
    cluster.put("jobs", DONE)


def texts(lines: Iterator[LogLine]) -> list[str]:
    return sorted(f"{line.pod} {line.text}" for line in lines)


def test_follow_yields_lines_of_all_pods_as_they_come(training: FakeCluster) -> None:
    lines = follow_logs(Cluster.connect(), "hvd")
    assert texts(iter([next(lines), next(lines)])) == ["hvd-master-1-a m1", "hvd-worker-0 w1"]
    training.log("hvd-worker-0", "w2")
    assert next(lines) == LogLine("hvd-worker-0", "w2")
    finish(training, "m2", "m3")
    assert [line.text for line in lines] == ["m2", "m3"]


@pytest.mark.slow
def test_follow_reads_pods_that_start_after_the_server_has_ended_its_watches(
    training: FakeCluster,
) -> None:
    training.put("pods", pod("hvd-worker-1", "worker", CREATING))
    # A pod that is deleted before its log is read.
    training.put("pods", pod("hvd-worker-9", "worker", RUNNING))
    lines = follow_logs(Cluster.connect(), "hvd", tail=5)
    seen = [next(lines), next(lines)]
    training.end_watches()
    training.log("hvd-worker-1", "late")
    training.put("pods", pod("hvd-worker-1", "worker", RUNNING))
    seen.append(next(lines))
    finish(training)
    seen += lines
    assert texts(iter(seen)) == ["hvd-master-1-a m1", "hvd-worker-0 w1", "hvd-worker-1 late"]
    logs = {
        request.path: request.query
        for request in reversed(training.requests)
        if request.resource == "log"
    }
    asked = [(query["tailLines"], query["container"]) for query in logs.values()]
    assert sorted(asked) == [("5", "master"), *[("5", "worker")] * 3]


def end_in_a_line(handler: Handler) -> None:
    handler.send_chunk(f"{LATER} the fir".encode())
    faults.end(handler)


@pytest.mark.parametrize(
    ("failure", "pauses"),
    [
        (faults.end, PAUSES),
        (end_in_a_line, PAUSES),
        (faults.cut_chunk, PAUSES),
        (faults.reset, PAUSES),
        (lambda handler: handler.api.closed.wait(), PAUSES._replace(log_silence_seconds=0.2)),
    ],
    ids=["ended", "ended in a line", "cut", "reset", "silent"],
)
def test_log_goes_on_after_the_loss_of_its_connection(
    training: FakeCluster, failure: Failure, pauses: Pauses
) -> None:
    """The API server sends the lines of the last second again; equal lines may be among them."""
    lines = follow_logs(Cluster.connect(), "hvd", component="master", pauses=pauses)
    training.log("hvd-master-1-a", "m2", "m2", at=LATER)
    assert [next(lines).text for _ in range(3)] == ["m1", "m2", "m2"]
    training.break_log("hvd-master-1-a", failure)
    training.log("hvd-master-1-a", "m2", "m3", at=LATER)
    assert [next(lines).text for _ in range(2)] == ["m2", "m3"]
    training.break_log("hvd-master-1-a", failure)
    finish(training, "the result")
    assert [line.text for line in lines] == ["the result"]


def test_a_log_that_is_opened_again_continues_at_its_first_connection(
    training: FakeCluster,
) -> None:
    """A line that comes between two connections is none of the last ones for the second."""

    def lose(handler: Handler) -> None:
        training.log("hvd-master-1-a", "between", at="2999-01-01T10:00:00Z")
        faults.end(handler)

    def end() -> None:
        training.wait_for("log", "get")
        training.break_log("hvd-master-1-a", lose)
        finish(training, "the result")

    with meanwhile(end):
        lines = list(
            follow_logs(Cluster.connect(), "hvd", tail=0, component="master", pauses=PAUSES)
        )
    assert [line.text for line in lines] == ["between", "the result"]


def test_log_of_an_ended_run_is_read_to_its_end(training: FakeCluster) -> None:
    """Its connection ends just before."""
    lines = follow_logs(Cluster.connect(), "hvd", component="master", pauses=PAUSES)
    assert next(lines).text == "m1"
    training.put("jobs", DONE)
    training.break_log("hvd-master-1-a")
    training.log("hvd-master-1-a", "the result", end=True)
    assert [line.text for line in lines] == ["the result"]


def test_log_of_an_ended_container_may_end_without_a_line_end(training: FakeCluster) -> None:
    content = faults.text(200, f"{LATER} first\n{LATER} last")
    training.fail("GET", "core/pods/hvd-master-1-a/log", content)
    training.put("pods", pod("hvd-master-1-a", "master", terminated(0)))
    lines = follow_logs(Cluster.connect(), "hvd", component="master", pauses=PAUSES)
    assert [next(lines).text, next(lines).text] == ["first", "last"]
    training.put("jobs", DONE)
    assert list(lines) == []


def test_log_goes_on_with_the_next_container_and_the_next_pod(training: FakeCluster) -> None:
    lines = follow_logs(Cluster.connect(), "hvd", component="worker", pauses=PAUSES)
    assert next(lines).text == "w1"
    training.put("pods", pod("hvd-worker-0", "worker", terminated(1)))
    training.log("hvd-worker-0", "w2", end=True)
    assert next(lines).text == "w2"
    training.wait_for_log("hvd-worker-0", 2)
    training.log("hvd-worker-0", "restarted")
    training.put("pods", pod("hvd-worker-0", "worker", RUNNING, restarts=1))
    assert next(lines).text == "restarted"
    replaced = pod("hvd-worker-0", "worker", RUNNING)
    replaced["metadata"]["uid"] = "another"
    training.put("pods", replaced)
    # The reader of the new pod knows none of its lines.
    assert [next(lines).text for _ in range(3)] == ["w1", "w2", "restarted"]
    training.log("hvd-worker-0", "once")
    finish(training)
    assert [line.text for line in lines] == ["once"]


@pytest.mark.parametrize("pod_name", ["hvd-worker-0", "hvd-master-1-a"])
def test_run_is_followed_to_its_end_without_a_log_that_cannot_be_read(
    training: FakeCluster, pod_name: str
) -> None:
    """The node is lost, for example; this is told once."""
    failure = faults.status(500, "no route to host")
    path = f"core/pods/{pod_name}/log"
    training.fail("GET", path, failure, times=10_000)

    def end() -> None:
        # The log is tried again several times.
        training.wait(lambda: len(training.asked("GET", path)) > 30)
        finish(training, "the result")

    with meanwhile(end):
        lines = list(follow_logs(Cluster.connect(), "hvd", pauses=IMPATIENT))
    reason = f"cannot read the log of pod {pod_name} in namespace team: no route to host (HTTP 500)"
    told = {"hvd-worker-0": ["w1"], "hvd-master-1-a": ["m1", "the result"], pod_name: [reason]}
    for name, expected in told.items():
        assert [line.text for line in lines if line.pod == name] == expected


@pytest.mark.parametrize("pod_name", ["hvd-worker-0", "hvd-master-1-a"])
def test_log_that_could_not_be_read_goes_on_when_its_container_runs(
    training: FakeCluster, pod_name: str
) -> None:
    """Just after the restart of a container, the API server refuses to read its log."""
    failure = faults.status(400, "is waiting to start: ContainerCreating")
    training.fail("GET", f"core/pods/{pod_name}/log", failure)
    lines = follow_logs(Cluster.connect(), "hvd", pauses=IMPATIENT)
    texts = [next(lines).text for _ in range(3)]
    assert sorted(text for text in texts if "ContainerCreating" not in text) == ["m1", "w1"]
    finish(training, "the result")
    assert [line.text for line in lines] == ["the result"]


def test_log_of_a_pod_that_is_gone_is_known_by_the_status(training: FakeCluster) -> None:
    """A proxy may answer with a text of its own."""
    training.refusals["log get"] = (404, "no such page")
    finish(training)
    assert list(follow_logs(Cluster.connect(), "hvd")) == []


def test_other_refusal_that_speaks_of_something_not_found_is_reported(
    training: FakeCluster,
) -> None:
    training.refusals["log get"] = (500, 'service "checks" not found')
    finish(training)
    (line,) = follow_logs(Cluster.connect(), "hvd", component="master", pauses=IMPATIENT)
    assert "checks" in line.text


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
def test_follow_ends_with_the_newest_job(training: FakeCluster, kind: str) -> None:
    older = job(("Complete", "", ""), name="hvd-master-0", created="2025-01-01T00:00:00Z")
    deleting = {**older, "metadata": {**older["metadata"], "deletionTimestamp": "2026"}}
    training.put("jobs", deleting)
    lines = follow_logs(Cluster.connect(), "hvd", component="master")
    assert next(lines).text == "m1"
    # An upgrade deletes the older run's Job, which does not end the new run.
    training.remove("jobs", "hvd-master-0")
    conditions = [{"type": kind, "status": "False"}, {"type": "Suspended", "status": "True"}]
    training.put("jobs", {**job(), "status": {"conditions": conditions}})
    training.put("jobs", {**job(), "status": {}})
    training.log("hvd-master-1-a", "m2")
    assert next(lines).text == "m2"
    training.log("hvd-master-1-a", end=True)
    training.put("jobs", job((kind, "", "")))
    assert list(lines) == []


def test_warnings_are_lines_once_since_the_run_began(training: FakeCluster) -> None:
    def warning(reason: str, message: str, **more: Any) -> Any:
        name = f"{reason}-{message}-{more.get('at', '')}"
        return event("hvd-worker-0", "Pod", reason, message, name=name, **more)

    training.put(
        "events",
        warning("FailedMount", "old", at="2025-01-01T10:00:01Z"),
        warning("Unhealthy", "startup probe"),
        warning("Pulled", "fine", type="Normal"),
        event("another-0", "Pod", "FailedMount", "of another release"),
        warning("FailedMount", "new", at="2026-01-01T10:00:00Z"),
        warning("FailedMount", "new", at="2026-01-01T10:00:02Z"),
        warning("FailedMount", "last"),
    )
    lines = follow_logs(Cluster.connect(), "hvd", component="none", warnings=True)
    assert next(lines) == LogLine("hvd-worker-0", "FailedMount: new")
    assert next(lines) == LogLine("hvd-worker-0", "FailedMount: last")
    finish(training)
    assert list(lines) == []


@pytest.mark.parametrize(
    ("message", "since", "is_reported"),
    [
        ("references non-existent secret key: user-key", "2026-01-01T10:00:00Z", False),
        ("references non-existent secret key: user-key", "2026-01-01T09:59:50Z", True),
        ('volume "keys": non-existent secret key: ca.crt', "2026-01-01T09:59:20Z", False),
        ("timed out waiting for the condition", "2026-01-01T10:00:01Z", True),
    ],
)
def test_secret_that_comes_a_moment_later_is_no_warning(
    training: FakeCluster, message: str, since: str, is_reported: bool
) -> None:
    failed = event("hvd-worker-0", "Pod", "FailedMount", message, at="2026-01-01T10:00:01Z")
    last = event("hvd-worker-0", "Pod", "Other", "last", name="z")
    training.put("events", {**failed, "firstTimestamp": since}, last)
    lines = follow_logs(Cluster.connect(), "hvd", component="none", warnings=True)
    assert (next(lines).text == f"FailedMount: {message}") is is_reported
    finish(training)
    assert len(list(lines)) == is_reported


def test_follow_waits_for_the_master_after_a_worker_has_ended(fake_cluster: FakeCluster) -> None:
    fake_cluster.put("jobs", job())
    fake_cluster.put("pods", pod("hvd-worker-0", "worker", terminated(1)))
    fake_cluster.log("hvd-worker-0", "w1", end=True)
    lines = follow_logs(Cluster.connect(), "hvd")
    assert next(lines) == LogLine("hvd-worker-0", "w1")
    fake_cluster.log("hvd-master-1-a", "m1")
    fake_cluster.put("pods", MASTER)
    assert next(lines) == LogLine("hvd-master-1-a", "m1")
    finish(fake_cluster)
    assert list(lines) == []


def test_follow_ends_with_the_run_whose_master_stays_for_the_next_one(
    training: FakeCluster,
) -> None:
    lines = follow_logs(Cluster.connect(), "hvd", component="master")
    assert next(lines).text == "m1"
    training.log("hvd-master-1-a", "m2")
    record = {"job": JOB, "state": "Finished", "lease": LEASE_KEPT}
    training.put("configmaps", {"metadata": {"name": "hvd-run"}, "data": record})
    assert [line.text for line in lines] == ["m2"]
