"""From the API server's objects to a state and a reason that a person can act on."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.run.release import Release, event_order, is_about
from hvdchart.run.report import event_lines, report
from hvdchart.run.status import Status, status_of

JOB = "hvd-master-1a2b3c4d"


def job(*conditions: tuple[str, str, str], name: str = JOB, **more: Any) -> dict[str, Any]:
    """A master's Job; conditions are (type, reason, message)."""
    return {
        "metadata": {"name": name, "creationTimestamp": more.get("made", "2026-01-01T10:00:00Z")},
        "spec": {"backoffLimit": 3, "suspend": more.get("suspend", False)},
        "status": {
            "failed": more.get("failed", 0),
            "conditions": [
                {"type": kind, "status": "True", "reason": reason, "message": message}
                for kind, reason, message in conditions
            ],
        },
    }


def pod(name: str, component: str, state: dict[str, Any] | None = None, **more: Any) -> Any:
    """A pod; `state` is its container's."""
    labels = {"app.kubernetes.io/component": component}
    if component == "master":
        labels["batch.kubernetes.io/job-name"] = more.get("job", JOB)
    conditions = more.get("conditions", [])
    if more.get("ready"):
        conditions = [{"type": "Ready", "status": "True"}]
    owner = more.get("job", JOB) if component == "master" else "hvd-worker"
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels,
                     "ownerReferences": [{"kind": "X", "name": owner}]},
        "spec": {"nodeName": more.get("node", "n1")},
        "status": {
            "phase": more.get("phase", "Running" if state and "running" in state else "Pending"),
            "conditions": conditions,
            **({"reason": more["reason"], "message": "node was low on memory"}
               if "reason" in more else {}),
            "containerStatuses": [
                {"name": component, "image": "team/train:1", "state": state,
                 "lastState": more.get("last", {}), "restartCount": more.get("restarts", 0)}
            ] if state else [],
        },
    }  # fmt: skip


def event(about: str, kind: str, reason: str, message: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": "2026-01-01T10:00:00Z"},
        "involvedObject": {"kind": kind, "name": about, "uid": more.get("uid", "")},
        "type": more.get("type", "Warning"), "reason": reason, "message": message,
        "lastTimestamp": more.get("at", "2026-01-01T10:00:01Z"),
    }  # fmt: skip


RUNNING = {"running": {"startedAt": "2026-01-01T10:00:05Z"}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}
SET = {"metadata": {"name": "hvd-worker"}, "spec": {"replicas": 2}}
MASTER = pod("hvd-master-1a2b3c4d-x", "master", RUNNING, ready=True)
WORKERS = [pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in (0, 1)]


def ended(code: int, message: str = "", reason: str = "Error", at: str = "10:01:00") -> Any:
    return {
        "terminated": {
            "exitCode": code, "reason": reason, "message": message,
            "finishedAt": f"2026-01-01T{at}Z",
        }
    }  # fmt: skip


def judged(
    pods: list[Any],
    *events: Any,
    jobs: list[Any] | None = None,
    sets: list[Any] | None = None,
    record: dict[str, str] | None = None,
) -> Status:
    jobs = [job()] if jobs is None else jobs
    sets = [SET] if sets is None else sets
    return status_of(Release("hvd", jobs, sets, pods, list(events), record or {}))


def test_a_run_that_trains() -> None:
    found = judged([MASTER, *WORKERS])
    assert (found.state, found.reason) == ("running", "")
    assert (found.workers_ready, found.workers_wanted, found.attempts) == (2, 2, 4)


def test_a_run_that_is_over() -> None:
    assert judged([], jobs=[job(("Complete", "", ""))], sets=[]).state == "finished"


def test_pods_on_their_way() -> None:
    found = judged([MASTER, WORKERS[0], pod("hvd-worker-1", "worker", CREATING)])
    assert found.state == "waiting"
    assert found.reason == "1 of 2 workers are up; hvd-worker-1: ContainerCreating"


def test_an_image_that_cannot_be_pulled() -> None:
    wrong = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    found = judged([MASTER, *(pod(f"hvd-worker-{n}", "worker", wrong) for n in (0, 1))])
    assert found.state == "waiting"
    assert found.reason.startswith("hvd-worker-0, hvd-worker-1: ImagePullBackOff of image team/tra")
    assert "image.tag" in found.advice


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "discover --fit"),
        ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", "labels"),
        ("0/3 nodes are available: 3 node(s) had untolerated taint {gpu: }.", "tolerations"),
        ("0/1 nodes: 1 node(s) didn't match pod topology spread constraints.", "worker.number"),
        ('persistentvolumeclaim "data" not found', "make the claim"),
    ],
)
def test_no_node_takes_a_worker(message: str, advice: str) -> None:
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
    }  # fmt: skip
    found = judged([MASTER, WORKERS[0], pod("hvd-worker-1", "worker", conditions=[condition])])
    assert found.reason == f"hvd-worker-1: no node takes it: {message}"
    assert advice in found.advice


def test_a_volume_that_does_not_mount() -> None:
    stuck = pod("hvd-worker-1", "worker", CREATING)
    mount = event("hvd-worker-1", "Pod", "FailedMount", 'secret "x" not found', uid="uid-hvd-wor")
    assert "FailedMount" not in judged([MASTER, WORKERS[0], stuck], mount).reason, "another pod's"
    mount["involvedObject"]["uid"] = "uid-hvd-worker-1"
    assert 'FailedMount: secret "x" not found' in judged([MASTER, WORKERS[0], stuck], mount).reason
    pulled = event("hvd-worker-1", "Pod", "Pulling", "image", type="Normal", at="10:00:09")
    assert "FailedMount" not in judged([MASTER, WORKERS[0], stuck], mount, pulled).reason


def test_pods_that_are_never_made() -> None:
    refusal = event("hvd-worker", "StatefulSet", "FailedCreate", "exceeded quota: gpus")
    found = judged([MASTER], refusal)
    assert found.reason == "hvd-worker: no pod could be made: exceeded quota: gpus"
    assert judged([MASTER, *WORKERS], refusal).state == "running", "an old event of a pod that is"


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("forbidden: no PriorityClass with name high was found", "priorityClassName"),
        ('pod rejected: RuntimeClass "kata" not found', "worker.runtimeClassName"),
        ("exceeded quota: gpus", "ResourceQuota"),
        ("denied by a webhook", "the message names the rule"),
    ],
)
def test_the_way_out_of_a_refusal(message: str, advice: str) -> None:
    # Those of the Job count too: without a master nobody else tells.
    for owner, kind in ((JOB, "Job"), ("hvd-worker", "StatefulSet")):
        found = judged([], event(owner, kind, "FailedCreate", message))
        assert message in found.reason
        assert advice in found.advice


def test_a_scheduler_that_is_not_there() -> None:
    waiting = pod("hvd-worker-0", "worker")
    waiting["spec"]["schedulerName"] = "volcano"
    found = judged([MASTER, waiting])
    assert "no scheduler named 'volcano' has looked at it" in found.reason
    waiting["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    assert "volcano" not in judged([MASTER, waiting]).reason


def test_a_missing_secret() -> None:
    missing = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "k" not f'}}
    found = judged([pod("hvd-master-1a2b3c4d-x", "master", missing), *WORKERS])
    assert 'CreateContainerConfigError: secret "k"' in found.reason


def test_a_worker_killed_for_memory() -> None:
    killed = pod("hvd-worker-1", "worker", RUNNING, last=ended(137, reason="OOMKilled"), ready=True)
    found = judged([MASTER, WORKERS[0], killed])
    assert "hvd-worker-1: killed for memory" in found.reason
    assert "memory" in found.advice


def test_a_failed_run_says_what_the_master_said_last() -> None:
    masters = [
        pod("a", "master", ended(1, "first", at="10:01:00"), phase="Failed"),
        pod("b", "master", ended(1, "loss is NaN at step 7\n", at="10:05:00"), phase="Failed"),
    ]
    failed = job(("Failed", "BackoffLimitExceeded", "Job has reached the limit"), failed=2)
    found = judged(masters, jobs=[failed])
    assert (found.state, found.reason) == ("failed", "loss is NaN at step 7")


def test_a_failed_run_without_a_message() -> None:
    failed = job(("Failed", "BackoffLimitExceeded", "Job has reached the limit"))
    assert judged([], jobs=[failed]).reason == "Job has reached the limit"
    silent = pod("a", "master", ended(7), phase="Failed")
    assert judged([silent], jobs=[failed]).reason == "the master ended with exit code 7"
    evicted = pod("a", "master", phase="Failed", reason="Evicted")
    assert judged([evicted], jobs=[failed]).reason == "Evicted: node was low on memory"


def test_a_deadline() -> None:
    failed = job(("Failed", "DeadlineExceeded", "Job was active longer than specified deadline"))
    found = judged([], jobs=[failed])
    assert "longer than" in found.reason
    assert "activeDeadlineSeconds" in found.advice


def test_between_two_attempts() -> None:
    last = pod("a", "master", ended(1, "a worker died"), phase="Failed")
    found = judged([last, *WORKERS], jobs=[job(failed=1)])
    assert (found.state, found.attempt) == ("retrying", 2)
    assert found.reason == "the last attempt failed: a worker died"
    again = judged([last, MASTER, *WORKERS], jobs=[job(failed=1)])
    assert (again.state, again.reason) == ("running", "an earlier attempt failed: a worker died")


def test_the_newest_run_counts() -> None:
    old = job(("Failed", "", "x"), name="hvd-master-old", made="2025-01-01T00:00:00Z")
    olds = pod("o", "master", ended(1, "old"), job="hvd-master-old", phase="Failed")
    found = judged([olds, MASTER, *WORKERS], jobs=[old, job()])
    assert (found.state, found.reason, found.job) == ("running", "", JOB)


def test_suspended_and_missing() -> None:
    assert judged([], jobs=[job(suspend=True)]).state == "suspended"
    assert judged([], jobs=[], sets=[]).state == "not found"
    assert judged(WORKERS, jobs=[]).reason == "its Job is gone"


def test_a_run_whose_job_had_a_time_to_live() -> None:
    finished = judged([], jobs=[], record={"state": "Finished", "reason": ""})
    assert (finished.state, finished.reason) == ("finished", "")
    failed = judged([], jobs=[], record={"state": "Failed", "reason": "exit code 3"})
    assert (failed.state, failed.reason, failed.over) == ("failed", "exit code 3", True)
    # Its master was lost before it could say: the Job alone knew.
    assert judged([], jobs=[], record={"state": "Running"}).state == "not found"


def test_the_report() -> None:
    workers = [pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in (10, 2)]
    workers[0]["status"]["containerStatuses"][0]["restartCount"] = 3
    text = report(judged([MASTER, *workers]), "team")
    assert text.startswith("hvd: running, 2 of 2 workers up\n")
    assert text.index("hvd-worker-2 ") < text.index("hvd-worker-10 ")
    assert "restarted 3 times" in text
    assert text.endswith("next: hvdchart logs hvd -n team\n")


def test_events() -> None:
    mine = event("hvd-worker-0", "Pod", "Pulled", "done\n twice", type="Normal")
    mine["count"] = 2
    other = event("hvdx", "Pod", "Pulled", "")
    assert [is_about(e, "hvd") for e in (mine, other)] == [True, False]
    (line,) = event_lines([mine])
    assert line == "2026-01-01T10:00:01Z Normal Pod/hvd-worker-0 Pulled: done twice (2 times)"


def test_events_of_one_second_keep_their_order() -> None:
    first, second = (event("hvd", "Job", reason, "") for reason in ("Waiting", "Training"))
    first["metadata"]["name"] = "hvd.20260101100000"
    second["metadata"]["name"] = "hvd.20260101100001"
    assert sorted([second, first], key=event_order) == [first, second]
