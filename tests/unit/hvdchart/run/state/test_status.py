"""The state of a run with its reason and remedy, and how it is printed."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest

from hvdchart.run.state.status_text import list_report, status_report
from hvdchart.run.state.view import RunView
from tests.unit.hvdchart.objects import (
    CREATING,
    DONE,
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
from tests.unit.hvdchart.run.state.releases import (
    BAD_IMAGE,
    LIMIT,
    PULLING,
    beside,
    release,
    status,
    unschedulable,
)

LATE = job(("Failed", "DeadlineExceeded", "Job was active longer than specified deadline"))
OOM = terminated(137, reason="OOMKilled")
NAN = terminated(1, "loss is NaN at step 7\n", at="10:05:00")
CRASHING = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
REFUSED = event("hvd-worker", "StatefulSet", "FailedCreate", "exceeded quota: gpus")
MOUNT = event("hvd-worker-1", "Pod", "FailedMount", 'secret "x" not found', uid="uid-hvd-worker-1")
NO_KEYS = {
    **event(
        "hvd-worker-1",
        "Pod",
        "FailedMount",
        'MountVolume.SetUp failed for volume "keys" : references non-existent secret key: ca.crt',
        uid="uid-hvd-worker-1",
        at="2026-01-01T10:00:30Z",
    ),
    "firstTimestamp": "2026-01-01T10:00:00Z",
}
OLD_MOUNT = event("hvd-worker-1", "Pod", "FailedMount", "of an older pod", uid="other")


@pytest.fixture(params=[0, 1, 2])
def lost(request: pytest.FixtureRequest) -> int:
    """The ordinal of the worker that is not up: each of them may be it."""
    ordinal: int = request.param
    return ordinal


@pytest.mark.parametrize(
    ("pods", "more", "state", "reason", "remedy"),
    [
        ([MASTER, *WORKERS], {}, "running", "", ""),
        (
            beside(state=BAD_IMAGE),
            {},
            "waiting",
            "hvd-worker-1: ",
            "image.tag",
        ),
        (
            beside(state=CRASHING, last=terminated(3, "no data")),
            {},
            "waiting",
            "hvd-worker-1: ",
            "log",
        ),
        (
            beside(state=RUNNING, last=OOM, ready=True),
            {},
            "running",
            "",
            "",
        ),
        (
            unschedulable("Unschedulable", "3 Insufficient nvidia.com/gpu."),
            {},
            "waiting",
            "hvd-worker-1: ",
            "hvdchart discover",
        ),
        (
            unschedulable("Unschedulable", "3 node(s) had untolerated taint {gpu: }."),
            {},
            "waiting",
            "hvd-worker-1: ",
            "tolerations",
        ),
        (
            unschedulable("SchedulingGated"),
            {},
            "waiting",
            "hvd-worker-1: ",
            "kubectl describe",
        ),
        # Of a run that has failed, with the last attempt's message, else its code, else the Job's.
        (
            [
                pod("a", "master", terminated(1, "first"), phase="Failed"),
                pod("b", "master", NAN, phase="Failed"),
            ],
            {"jobs": [LIMIT]},
            "failed",
            "loss is NaN at step 7",
            "",
        ),
        ([], {"jobs": [LIMIT]}, "failed", "Job has reached the limit", ""),
        ([], {"jobs": [LATE]}, "failed", "Job was active longer", "activeDeadlineSeconds"),
        (
            [pod("hvd-worker-0", "worker", OOM, phase="Failed")],
            {"jobs": [LIMIT]},
            "failed",
            r"hvd-worker-0: .*\bOOMKilled\b",
            "raise `worker.resources.limits.memory`",
        ),
        # Between two attempts, and in a later one.
        (
            [pod("a", "master", NAN, phase="Failed"), *WORKERS],
            {"jobs": [job(failed=1)]},
            "retrying",
            ".*: loss is NaN at step 7$",
            "",
        ),
        (
            [pod("a", "master", OOM, phase="Failed"), *WORKERS],
            {"jobs": [job(failed=1)]},
            "retrying",
            r".*\bOOMKilled\b.* `master\.resources\.limits\.memory`",
            "",
        ),
        (
            [pod("a", "master", NAN, phase="Failed"), MASTER, *WORKERS],
            {"jobs": [job(failed=1)]},
            "running",
            ".*: loss is NaN at step 7$",
            "",
        ),
        (
            [],
            {"jobs": [job(suspend=True)]},
            "suspended",
            ".",
            "hvdchart restart hvd",
        ),
        ([], {"jobs": [], "sets": []}, "not found", ".", "hvdchart list"),
        # The Job was deleted: the record has the outcome, unless the master was lost before.
        (
            WORKERS,
            {"jobs": [], "record": {"job": JOB, "state": "Running"}},
            "not found",
            ".*Job",
            "deploy it again to",
        ),
        # No Job was ever made: a quota has refused it.
        (WORKERS, {"jobs": []}, "not found", ".*no Job", "remove"),
        (
            WORKERS,
            {"jobs": [], "events": [event(JOB, "Job", "SuccessfulCreate", "a", type="Normal")]},
            "not found",
            ".*Job was deleted",
            "",
        ),
        # The master of a session stays with the workers, for the next run.
        (
            [MASTER, *WORKERS],
            {"record": {"job": JOB, "state": "Finished", "lease": "kept"}},
            "finished",
            "",
            "",
        ),
        (
            [MASTER, *WORKERS],
            {"record": {"job": JOB, "state": "Failed", "lease": "kept", "reason": "boom"}},
            "failed",
            "boom",
            "",
        ),
        (
            [],
            {"jobs": [DONE], "record": {"job": JOB, "lease": "nobody has renewed it"}},
            "finished",
            ".*: nobody has renewed it$",
            "",
        ),
        ([], {"jobs": [], "record": {"state": "Finished"}}, "finished", "", ""),
        (
            [],
            {"jobs": [], "record": {"state": "Failed", "reason": "exit code 3"}},
            "failed",
            "exit code 3",
            "",
        ),
        # The last event about a pod that does not start.
        (
            beside(state=CREATING),
            {"events": [MOUNT]},
            "waiting",
            'hvd-worker-1: FailedMount: secret "x" not found',
            "",
        ),
        (
            [pod("hvd-worker-1", "worker", CREATING), pod("hvd-worker-2", "worker", BAD_IMAGE)],
            {"events": [MOUNT]},
            "waiting",
            "hvd-worker-1: FailedMount",
            "exists; check `image",
        ),
        # The master makes the keys a moment later.
        (beside(state=CREATING), {"events": [NO_KEYS]}, "waiting", "1 of 2 workers", ""),
        (
            beside(state=CREATING),
            {"events": [{**NO_KEYS, "lastTimestamp": "2026-01-01T10:01:05Z"}]},
            "waiting",
            "hvd-worker-1: FailedMount",
            "Secret exists",
        ),
        (beside(state=CREATING), {"events": [MOUNT, PULLING]}, "waiting", "1 of 2 workers", ""),
        (beside(state=CREATING), {"events": [OLD_MOUNT]}, "waiting", "1 of 2 workers", ""),
        # Of pods that do not exist: the Job's too, without which no other object shows it.
        (
            [MASTER],
            {"events": [REFUSED]},
            "waiting",
            "hvd-worker: .*: exceeded quota: gpus$",
            "ResourceQuota",
        ),
        (
            [],
            {"events": [event(JOB, "Job", "FailedCreate", "denied by a webhook")]},
            "waiting",
            f"{JOB}: .*: denied by a webhook$",
            "rule",
        ),
        ([MASTER, *WORKERS], {"events": [REFUSED]}, "running", "", ""),
    ],
)
def test_state_with_its_reason_and_remedy(
    pods: list[Any], more: dict[str, Any], state: str, reason: str, remedy: str
) -> None:
    more = dict(more)
    current = status(pods, *more.pop("events", ()), **more)
    assert current.state == state
    assert re.match(reason or "$", current.reason), current.reason
    assert remedy in current.remedy


def test_status_is_that_of_the_newest_job() -> None:
    old = job(("Failed", "", "x"), name="hvd-master-old", created="2025-01-01T00:00:00Z")
    olds = pod("o", "master", terminated(1, "old"), job="hvd-master-old", phase="Failed")
    current = status([olds, MASTER, *WORKERS], jobs=[old, job(failed=1)])
    assert (current.state, current.reason, current.job) == ("running", "", JOB)
    assert (current.attempt, current.attempts) == (2, 4)


ATTEMPTS = {"job": JOB, "state": "Running", "attempts": "3", "reason": "a rank was killed"}


def test_status_has_the_attempts_in_the_record_of_its_job() -> None:
    current = status([MASTER, *WORKERS], record=ATTEMPTS)
    assert (current.attempt, current.reason.partition(": ")[2]) == (3, "a rank was killed")


@pytest.mark.parametrize(
    ("changes", "is_own"),
    [
        ({"job": "hvd-master-0"}, False),
        # A release that was uninstalled had a Job of this name, too.
        ({"uid": "uid-old"}, False),
        ({"uid": "uid-new"}, True),
    ],
    ids=["another name", "another Job of the name", "this Job"],
)
def test_status_has_the_attempts_of_no_other_run(changes: dict[str, str], is_own: bool) -> None:
    present = job()
    present["metadata"]["uid"] = "uid-new"
    current = status([MASTER, *WORKERS], jobs=[present], record={**ATTEMPTS, **changes})
    expected = (3, "a rank was killed") if is_own else (1, "")
    assert (current.attempt, current.reason.partition(": ")[2]) == expected


SPARE = {"name": "hvd-worker", "annotations": {"hvdchart/spares": "1"}}
THREE_WITH_A_SPARE = [{"metadata": SPARE, "spec": {"replicas": 3}}]


def up_without(lost: int) -> list[Any]:
    """The master, and two of three workers that are up; `lost` is the ordinal of the other."""
    others = [ordinal for ordinal in range(3) if ordinal != lost]
    return [MASTER, *(pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in others)]


def test_a_run_whose_spare_stands_in_is_running(lost: int) -> None:
    """Although the run does not need the lost worker, it is named."""
    down = pod(f"hvd-worker-{lost}", "worker", BAD_IMAGE)
    current = status([*up_without(lost), down], sets=THREE_WITH_A_SPARE)
    assert current.state == "running"
    assert (current.workers_ready, current.workers_wanted) == (2, 2)
    assert (current.spares_ready, current.spares_wanted) == (0, 1)
    assert current.reason.startswith(f"hvd-worker-{lost}: ImagePullBackOff")
    head = "hvd: running, 2 of 2 workers up, 0 of 1 spare"
    assert next(status_report(current, "team")) == head
    assert " 2/2+0/1 " in list_report([("team", current)])[1]


def test_a_spare_that_cannot_be_created_is_no_reason(
    lost: int,
) -> None:
    assert "quota" not in status(up_without(lost), REFUSED, sets=THREE_WITH_A_SPARE).reason


TENSORBOARD = pod("hvd-tensorboard-1", "tensorboard", BAD_IMAGE)


def test_a_run_whose_tensorboard_cannot_start_is_running() -> None:
    current = status([MASTER, *WORKERS, TENSORBOARD])
    assert current.state == "running"
    assert "hvd-tensorboard-1: ImagePullBackOff" in current.reason


def test_a_run_waits_for_its_worker_and_not_for_tensorboard() -> None:
    run = RunView(release([*beside(state=CREATING), TENSORBOARD]))
    assert "hvd-worker-1" in run.status.reason
    assert "tensorboard" not in f"{run.status.reason} {run.phase}"


def test_tensorboard_without_a_node_is_no_pod_that_the_run_schedules() -> None:
    pods = [*unschedulable("Unschedulable"), pod("hvd-tensorboard-1", "tensorboard", RUNNING)]
    assert "2 of 3 pods" in str(RunView(release(pods)).phase)


EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}


@pytest.mark.parametrize(
    ("is_deleted", "others", "state"),
    [(True, [], "waiting"), (False, [], "running"), (True, [MASTER], "running")],
    ids=["evicted", "not deleted yet", "another master"],
)
def test_a_run_whose_master_is_on_a_failed_node_waits_for_another_one(
    is_deleted: bool, others: list[Any], state: str
) -> None:
    """No kubelet ends the pod, so that the Job controller creates no other one."""
    evicted = pod("hvd-master-9", "master", RUNNING, conditions=[EVICTED], node="n9")
    if is_deleted:
        evicted["metadata"]["deletionTimestamp"] = "2026-01-01T10:00:00Z"
    current = status([evicted, *others, *WORKERS])
    assert current.state == state
    assert ("n9" in current.remedy and "out-of-service" in current.remedy) is (state == "waiting")


FEWER = {"name": "hvd-worker", "annotations": {"hvdchart/minimum": "1"}}
WITH_A_MINIMUM = [{"metadata": FEWER, "spec": {"replicas": 3}}]


@pytest.mark.parametrize(
    ("workers", "state", "reason"),
    [
        ('{"hvd-worker": "0,2"}', "running", "2 of 3"),
        ('{"hvd-worker": "0-2"}', "running", ""),
        ("", "waiting", "2 of 3"),
    ],
)
def test_run_with_a_minimum_continues_without_a_worker(
    workers: str, state: str, reason: str
) -> None:
    """Before it has trained, it waits for all."""
    record = {"job": JOB, "state": "Running", "workers": workers}
    pods = [*up_without(1), pod("hvd-worker-1", "worker", CREATING)]
    current = status(pods, sets=WITH_A_MINIMUM, record=record)
    assert current.state == state
    assert reason in current.reason
    assert bool(current.reason) == bool(reason)
    assert (current.workers_ready, current.workers_wanted) == (2, 3)


def test_report_of_many_pods_lists_those_that_do_not_just_run() -> None:
    number = 200
    many = [pod(f"hvd-worker-{n}", "worker", RUNNING, ready=True) for n in range(number)]
    many[150] = pod("hvd-worker-150", "worker", CREATING)
    many[7] = pod("hvd-worker-7", "worker", RUNNING, ready=True, restarts=2)
    sets = [{**STATEFUL_SET, "spec": {"replicas": number}}]
    lines = list(status_report(status([MASTER, *many], sets=sets), "team"))
    assert lines[0] == "hvd: waiting, 199 of 200 workers up"
    assert [line for line in lines if line.startswith("  hvd-")] == [
        "  hvd-worker-7    Running on n1, restarted 2 times",
        "  hvd-worker-150  ContainerCreating on n1",
    ]
    assert any("199 " in line and "-o json" in line for line in lines)
    assert lines[-1] == "next: hvdchart events hvd -n team"


def test_a_run_whose_stateful_sets_were_deleted_says_so_and_what_to_do() -> None:
    current = status([MASTER], sets=[])
    assert current.state == "waiting"
    assert "StatefulSets" in current.reason
    assert "hvdchart restart" in current.remedy


@pytest.mark.parametrize("is_stopped", [True, False])
def test_the_command_that_continues_a_run_names_its_namespace(is_stopped: bool) -> None:
    run_job = job(suspend=is_stopped)
    run_job["metadata"]["namespace"] = "team"
    current = status([MASTER], jobs=[run_job], sets=[])
    assert current.remedy.endswith("hvdchart restart hvd -n team")


def test_a_run_whose_master_has_recorded_the_end_is_finishing() -> None:
    gone = {**STATEFUL_SET, "spec": {"replicas": 0}}
    record = {"job": JOB, "state": "Finished"}
    current = status([MASTER, *WORKERS], sets=[gone], record=record)
    assert (current.state, current.over) == ("finishing", False)
    assert next(status_report(current, "team")) == "hvd: finishing"


def test_the_end_of_an_earlier_run_is_not_that_of_this_one() -> None:
    record = {"job": "hvd-master-before", "state": "Finished"}
    assert status([MASTER, *WORKERS], record=record).state == "running"


def test_duration_of_a_run_is_reported() -> None:
    began = datetime.fromisoformat("2026-01-01T10:00:00Z").timestamp()
    head = next(status_report(status([MASTER, *WORKERS]), "team", began + 90))
    assert head == "hvd: running for 90 s, 2 of 2 workers up"
    record = {"job": JOB, "state": "Finished", "time": "2026-01-01T10:00:24Z"}
    over = status([], jobs=[DONE], record=record)
    assert next(status_report(over, "team", began + 9000)) == "hvd: finished after 24 s"
