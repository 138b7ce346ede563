"""The state of a run, its reason and advice, from the API server's objects."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.run.phases import Phase, phase_of
from hvdchart.run.release import Release, is_about
from hvdchart.run.report import event_lines, list_report, status_report
from hvdchart.run.status import Status, run_status
from tests.unit.hvdchart.runs import (
    CREATING,
    JOB,
    MASTER,
    RUNNING,
    STATEFUL_SET,
    WORKERS,
    event,
    job,
    pod,
    terminated,
)


def status(
    pods: list[Any],
    *events: Any,
    jobs: list[Any] | None = None,
    sets: list[Any] | None = None,
    record: dict[str, str] | None = None,
) -> Status:
    jobs = [job()] if jobs is None else jobs
    sets = [STATEFUL_SET] if sets is None else sets
    return run_status(Release("hvd", jobs, sets, pods, list(events), record or {}))


def test_run_with_ready_pods_is_running() -> None:
    current = status([MASTER, *WORKERS])
    assert (current.state, current.reason) == ("running", "")
    assert (current.workers_ready, current.workers_wanted, current.attempts) == (2, 2, 4)


def test_failed_image_pull_names_the_pods_and_the_image() -> None:
    wrong = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    current = status([MASTER, *(pod(f"hvd-worker-{n}", "worker", wrong) for n in (0, 1))])
    assert current.state == "waiting"
    assert current.reason.startswith(
        "hvd-worker-0, hvd-worker-1: ImagePullBackOff of image team/tra"
    )
    assert "image.tag" in current.advice


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "discover --fit"),
        ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", "labels"),
        ("0/3 nodes are available: 3 node(s) had untolerated taint {gpu: }.", "tolerations"),
        ("0/1 nodes: 1 node(s) didn't match pod topology spread constraints.", "worker.number"),
        ('persistentvolumeclaim "data" not found', "create the claim"),
    ],
)
def test_unschedulable_worker_has_the_schedulers_message_and_advice(
    message: str, advice: str
) -> None:
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
    }  # fmt: skip
    current = status([MASTER, WORKERS[0], pod("hvd-worker-1", "worker", conditions=[condition])])
    assert current.reason == f"hvd-worker-1: cannot be scheduled: {message}"
    assert advice in current.advice


def test_worker_in_a_queue_is_named_with_the_queues_gate() -> None:
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    queued = pod("hvd-worker-1", "worker", conditions=[gated])
    queued["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    current = status([MASTER, WORKERS[0], queued])
    assert current.reason == "hvd-worker-1: in a queue (scheduling gate kueue.x-k8s.io/admission)"
    assert "kubectl describe workloads" in current.advice


def test_failed_mount_is_the_reason_until_a_later_event() -> None:
    stuck = pod("hvd-worker-1", "worker", CREATING)
    mount = event("hvd-worker-1", "Pod", "FailedMount", 'secret "x" not found', uid="uid-hvd-wor")
    assert "FailedMount" not in status([MASTER, WORKERS[0], stuck], mount).reason, "another pod's"
    mount["involvedObject"]["uid"] = "uid-hvd-worker-1"
    assert 'FailedMount: secret "x" not found' in status([MASTER, WORKERS[0], stuck], mount).reason
    pulled = event("hvd-worker-1", "Pod", "Pulling", "image", type="Normal", at="10:00:09")
    assert "FailedMount" not in status([MASTER, WORKERS[0], stuck], mount, pulled).reason


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("forbidden: no PriorityClass with name high was found", "priorityClassName"),
        ('pod rejected: RuntimeClass "kata" not found', "worker.runtimeClassName"),
        ("exceeded quota: gpus", "ResourceQuota"),
        ("denied by a webhook", "the message names the rule"),
    ],
)
def test_refused_pod_of_job_and_stateful_set_has_advice(message: str, advice: str) -> None:
    # The Job's too: without a master, no other object shows it.
    for owner, kind in ((JOB, "Job"), ("hvd-worker", "StatefulSet")):
        current = status([], event(owner, kind, "FailedCreate", message))
        assert message in current.reason
        assert advice in current.advice


def test_pod_without_its_scheduler_names_the_scheduler() -> None:
    waiting = pod("hvd-worker-0", "worker")
    waiting["spec"]["schedulerName"] = "volcano"
    current = status([MASTER, waiting])
    assert "scheduler 'volcano' has not processed the pod" in current.reason
    waiting["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    assert "volcano" not in status([MASTER, waiting]).reason


def test_worker_killed_for_memory_is_the_reason() -> None:
    killed = pod(
        "hvd-worker-1", "worker", RUNNING, last=terminated(137, reason="OOMKilled"), ready=True
    )
    current = status([MASTER, WORKERS[0], killed])
    assert "hvd-worker-1: killed for memory" in current.reason
    assert "memory" in current.advice


def test_failed_run_has_the_termination_message_of_the_last_attempt() -> None:
    masters = [
        pod("a", "master", terminated(1, "first", at="10:01:00"), phase="Failed"),
        pod("b", "master", terminated(1, "loss is NaN at step 7\n", at="10:05:00"), phase="Failed"),
    ]
    failed = job(("Failed", "BackoffLimitExceeded", "Job has reached the limit"), failed=2)
    current = status(masters, jobs=[failed])
    assert (current.state, current.reason) == ("failed", "loss is NaN at step 7")


def test_failed_run_without_a_message_has_the_exit_code_or_condition() -> None:
    failed = job(("Failed", "BackoffLimitExceeded", "Job has reached the limit"))
    assert status([], jobs=[failed]).reason == "Job has reached the limit"
    silent = pod("a", "master", terminated(7), phase="Failed")
    assert status([silent], jobs=[failed]).reason == "the master ended with exit code 7"
    evicted = pod("a", "master", phase="Failed", reason="Evicted")
    assert status([evicted], jobs=[failed]).reason == "Evicted: node was low on memory"


def test_run_between_two_attempts_is_retrying() -> None:
    last = pod("a", "master", terminated(1, "a worker died"), phase="Failed")
    current = status([last, *WORKERS], jobs=[job(failed=1)])
    assert (current.state, current.attempt) == ("retrying", 2)
    assert current.reason == "the last attempt failed: a worker died"
    again = status([last, MASTER, *WORKERS], jobs=[job(failed=1)])
    assert (again.state, again.reason) == ("running", "an earlier attempt failed: a worker died")


def test_status_is_that_of_the_newest_job() -> None:
    old = job(("Failed", "", "x"), name="hvd-master-old", created="2025-01-01T00:00:00Z")
    olds = pod("o", "master", terminated(1, "old"), job="hvd-master-old", phase="Failed")
    current = status([olds, MASTER, *WORKERS], jobs=[old, job()])
    assert (current.state, current.reason, current.job) == ("running", "", JOB)


def test_suspended_and_missing_runs_have_states_of_their_own() -> None:
    assert status([], jobs=[job(suspend=True)]).state == "suspended"
    assert status([], jobs=[], sets=[]).state == "not found"
    assert status(WORKERS, jobs=[]).reason == "the run's Job was deleted"


def test_attempts_that_one_master_makes_are_in_the_record() -> None:
    record = {"job": JOB, "state": "Running", "attempts": "3", "reason": "a rank was killed"}
    again = status([MASTER, *WORKERS], record=record)
    assert (again.state, again.reason) == (
        "running", "an earlier attempt failed: a rank was killed",
    )  # fmt: skip
    assert (again.attempt, again.attempts) == (3, 4)
    of_another_run = status([MASTER, *WORKERS], record={**record, "job": "hvd-master-0"})
    assert (of_another_run.reason, of_another_run.attempt) == ("", 1)


@pytest.mark.parametrize(
    ("failed", "limit", "attempt", "attempts"),
    [(None, 3, 1, 4), (0, 0, 1, 1), (1, 3, 2, 4), (4, 3, 4, 4), (1, None, 2, 7)],
)
def test_attempts_are_those_of_the_job(
    failed: int | None, limit: int | None, attempt: int, attempts: int
) -> None:
    run = job(failed=failed)
    run["spec"]["backoffLimit"] = limit
    for part, name in (("status", "failed"), ("spec", "backoffLimit")):
        if run[part][name] is None:
            del run[part][name]
    current = status([MASTER, *WORKERS], jobs=[run])
    assert (current.attempt, current.attempts) == (attempt, attempts)
    without = status([], jobs=[])
    assert (without.attempt, without.attempts) == (0, 0)


def test_deleted_job_has_the_outcome_in_the_record() -> None:
    finished = status([], jobs=[], record={"state": "Finished", "reason": ""})
    assert (finished.state, finished.reason) == ("finished", "")
    failed = status([], jobs=[], record={"state": "Failed", "reason": "exit code 3"})
    assert (failed.state, failed.reason, failed.over) == ("failed", "exit code 3", True)
    # The master was lost before it could record the outcome.
    assert status([], jobs=[], record={"state": "Running"}).state == "not found"


@pytest.mark.parametrize("jobs", [[job(("Complete", "", ""))], []], ids=["job", "record"])
@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ("", ""),
        ("Stored", ""),
        ("exit code 9", "the results could not be stored: exit code 9"),
    ],
)
def test_finished_run_says_when_its_results_are_not_stored(
    jobs: list[Any], results: str, reason: str
) -> None:
    finished = status([], jobs=jobs, record={"state": "Finished", "results": results})
    assert (finished.state, finished.reason) == ("finished", reason)


SPARE: dict[str, Any] = {
    "metadata": {"name": "hvd-worker", "annotations": {"horovod/spares": "1"}},
    "spec": {"replicas": 3},
}
PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_run_whose_spare_stands_in_is_running(lost: int) -> None:
    """Whichever pod is not up: it is not needed, and yet told."""
    names = [f"hvd-worker-{ordinal}" for ordinal in range(3)]
    up = [pod(name, "worker", RUNNING, ready=True) for name in names if name != names[lost]]
    current = status([MASTER, *up, pod(names[lost], "worker", PULL)], sets=[SPARE])
    assert current.state == "running"
    assert current.reason.startswith(f"{names[lost]}: ImagePullBackOff")
    assert "image.tag" in current.advice
    assert (current.workers_ready, current.workers_wanted) == (2, 2)
    assert (current.spares_ready, current.spares_wanted) == (0, 1)
    refused = event("hvd-worker", "StatefulSet", "FailedCreate", "exceeded quota: gpus")
    assert "quota" not in status([MASTER, *up], refused, sets=[SPARE]).reason
    head = "hvd: running, 2 of 2 workers up, 0 of 1 spare\n"
    assert status_report(current, "team").startswith(head)
    assert " 2/2+0/1 " in list_report([("team", current)])


def test_idle_spares_are_counted_and_scaled_down_ones_are_none() -> None:
    ready = [pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in range(3)]
    current = status([MASTER, *ready], sets=[SPARE])
    assert (current.state, current.reason) == ("running", "")
    assert (current.workers_ready, current.spares_ready, current.spares_wanted) == (2, 1, 1)
    ended = status([], sets=[{**SPARE, "spec": {"replicas": 0}}], jobs=[job(("Complete", "", ""))])
    assert (ended.workers_wanted, ended.spares_wanted) == (0, 0)


def test_report_lists_pods_in_order_with_restarts() -> None:
    workers = [pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in (10, 2)]
    workers[0]["status"]["containerStatuses"][0]["restartCount"] = 3
    text = status_report(status([MASTER, *workers]), "team")
    assert text.startswith("hvd: running, 2 of 2 workers up\n")
    assert text.index("hvd-worker-2 ") < text.index("hvd-worker-10 ")
    assert (
        f"  {'hvd-worker-10':<{len(MASTER['metadata']['name'])}}  Running on n1, restarted 3 times"
        in text
    )
    assert text.endswith("next: hvdchart logs hvd -n team\n")


def test_event_is_one_line() -> None:
    mine = event("hvd-worker-0", "Pod", "Pulled", "done\n twice", type="Normal")
    mine["count"] = 2
    other = event("hvdx", "Pod", "Pulled", "")
    assert [is_about(e, "hvd") for e in (mine, other)] == [True, False]
    (line,) = event_lines([mine])
    assert line == "2026-01-01T10:00:01Z Normal Pod/hvd-worker-0 Pulled: done twice (2 times)"
    del mine["count"]
    assert list(event_lines([mine])) == [line.removesuffix(" (2 times)")]


def test_report_of_many_pods_lists_those_that_do_not_just_run() -> None:
    number = 200
    many = [pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in range(number)]
    many[150] = pod("hvd-worker-150", "worker", CREATING)
    many[7] = pod("hvd-worker-7", "worker", RUNNING, ready=True, restarts=2)
    sets = [{**STATEFUL_SET, "spec": {"replicas": number}}]
    lines = status_report(status([MASTER, *many], sets=sets), "team").splitlines()
    assert lines[0] == "hvd: waiting, 199 of 200 workers up"
    assert [line for line in lines if line.startswith("  ")] == [
        "  hvd-worker-7    Running on n1, restarted 2 times",
        "  hvd-worker-150  ContainerCreating on n1",
        "  199 other pods run; -o json lists all",
    ]
    healthy = status([MASTER, *many[:7], *many[8:150]], sets=sets)
    assert "  150 pods run; -o json lists all" in status_report(healthy, "team")


UNPLACED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
NO_NODE = pod("hvd-worker-1", "worker", node="", conditions=[{**UNPLACED, "message": "0/3 nodes"}])
BEING_MADE = pod("hvd-worker-1", "worker", CREATING)
BAD_IMAGE = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}
TRAINING = event(JOB, "Job", "Training", "starts", type="Normal", at="3")
READY = event(JOB, "Job", "HostsReady", "answer", type="Normal", at="2")
RECORD = {"job": JOB, "progress": '{"step": 7}'}


def phase(
    pods: list[Any], *events: Any, jobs: list[Any] | None = None, record: Any = None
) -> Phase:
    jobs = [job()] if jobs is None else jobs
    return phase_of(Release("hvd", jobs, [STATEFUL_SET], pods, list(events), record or {}))


def gated() -> Any:
    held = pod("hvd-worker-1", "worker", node="")
    held["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    held["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    ]
    return held


@pytest.mark.parametrize(
    ("pods", "events", "expected"),
    [
        ([], [], "scheduling: 0 of 3 pods have a node"),
        ([MASTER, WORKERS[0], gated()], [],
         "queued: in a queue (scheduling gate kueue.x-k8s.io/admission)"),
        ([MASTER, WORKERS[0], NO_NODE], [],
         "scheduling: 2 of 3 pods have a node; cannot be scheduled: 0/3 nodes"),
        ([MASTER, WORKERS[0], BEING_MADE], [], "starting: hvd-worker-1"),
        ([MASTER, WORKERS[0], BEING_MADE], [event("hvd-worker-1", "Pod", "Pulling", "image")],
         "pulling images: hvd-worker-1"),
        ([MASTER, WORKERS[0], BEING_MADE],
         [event("hvd-worker-1", "Pod", reason, "image") for reason in ("Pulling", "Pulled")],
         "starting: hvd-worker-1"),
        ([MASTER, WORKERS[0], pod("hvd-worker-1", "worker", BAD_IMAGE)], [],
         "pulling images: hvd-worker-1; ImagePullBackOff of image team/train:1: Back-off; "),
        ([MASTER, *WORKERS], [], "starting"),
        ([MASTER, *WORKERS], [READY], "hosts ready"),
        ([MASTER, *WORKERS], [READY, TRAINING], "training"),
        # A worker that comes again later does not take a run back that trains.
        ([MASTER, WORKERS[0]], [READY, TRAINING], "training"),
        ([MASTER, *WORKERS], [TRAINING, event(JOB, "Job", "Started", "again", at="4")], "starting"),
        # Of the run before.
        ([MASTER, *WORKERS], [event("hvd-master-old", "Job", "Training", "starts")], "starting"),
    ],
)  # fmt: skip
def test_the_phase_and_what_it_waits_for(pods: list[Any], events: list[Any], expected: str) -> None:
    shown = str(phase(pods, *events))
    assert shown.startswith(expected) if expected.endswith("; ") else shown == expected


def test_a_run_that_trains_has_its_progress() -> None:
    assert str(phase([MASTER, *WORKERS], TRAINING, record=RECORD)) == "training: step 7"


def test_a_run_that_is_over_says_how() -> None:
    assert str(phase([], jobs=[job(("Complete", "", ""))])) == "done: finished"
    lost = pod(f"{JOB}-x", "master", terminated(1, "boom"), phase="Failed")
    failed = job(("Failed", "BackoffLimitExceeded", "limit"))
    assert str(phase([lost], jobs=[failed])) == "done: failed, boom"
