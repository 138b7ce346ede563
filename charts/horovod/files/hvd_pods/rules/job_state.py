"""The state of the Job: whether it makes another master, until when, and who has stopped it."""

from __future__ import annotations

import sys

from hvd_pods.cluster.objects import Object, parse_time
from hvd_pods.shared.contract import QUEUE
from hvd_pods.shared.errors import InterruptedRunError, RunError
from hvd_pods.shared.exit_codes import BAD_CONFIGURATION

# Seconds that the Job controller waits before the next attempt: doubled with each failure.
# kubernetes.io/docs/concepts/workloads/controllers/job, "Pod backoff failure policy".
FIRST_BACKOFF = 10.0
LONGEST_BACKOFF = 360.0
# Stop waiting this many seconds before the Job's deadline: the deadline fails the Job.
END_BEFORE = 15.0
# A substitute for a Job that the API server did not return: another attempt may follow a failure.
UNREADABLE: Object = {"metadata": {}, "spec": {}}
# A substitute for a deleted Job that no other Job has replaced.
DELETED: Object = {"metadata": {"deletionTimestamp": ""}, "spec": {}}


def failure_reason(job: Object) -> str:
    """Return why the Job controller creates no more pods; empty while it may."""
    for condition in job.get("status", {}).get("conditions") or []:
        # FailureTarget comes first (Kubernetes 1.31), Failed when the last pod has ended.
        if condition["type"] in ("FailureTarget", "Failed") and condition["status"] == "True":
            return str(condition.get("reason") or condition["type"])
    return ""


def is_withdrawn(job: Object) -> bool:
    """Return whether a person or a queue has stopped the run: the Job is deleted or suspended."""
    return "deletionTimestamp" in job["metadata"] or bool(job.get("spec", {}).get("suspend"))


def is_over(job: Object) -> bool:
    """Return whether the Job has no pod and creates none: it has ended or is suspended."""
    conditions = job.get("status", {}).get("conditions") or []
    ended = any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)
    return ended or bool(job.get("spec", {}).get("suspend"))


def will_retry(job: Object, code: int, wall: float) -> bool:
    """Return whether the Job makes another master after this one, which ends with `code`.

    An eviction does not count as a failure, but looks like a deletion, which does. So this may be
    False although another master follows: it scales the workers up again. A master that waits in a
    queue cannot do that: with a queue, each interruption is treated as a preemption.
    """
    if code in (0, BAD_CONFIGURATION) or failure_reason(job):
        return False
    failed = int(job.get("status", {}).get("failed", 0))
    annotations = job["metadata"].get("annotations", {})
    is_preempted = code == InterruptedRunError.exit_code and QUEUE in annotations
    if failed >= int(job["spec"].get("backoffLimit", sys.maxsize)) and not is_preempted:
        return False
    # If the deadline passes between two masters, no master scales the workers down.
    return bool(wall + backoff(job) < deadline(job))


def backoff(job: Object) -> float:
    """Return the seconds that the Job controller waits before the next master."""
    failed = int(job.get("status", {}).get("failed", 0))
    return float(min(FIRST_BACKOFF * 2 ** min(failed, 10), LONGEST_BACKOFF))


def is_continued(job: Object, wall: float) -> bool:
    """Return whether the Job makes another master if this unfinished one is terminated."""
    is_sure = job != UNREADABLE and not is_withdrawn(job)
    return is_sure and will_retry(job, InterruptedRunError.exit_code, wall)


def deadline(job: Object) -> float:
    """Return when the Job controller ends the run, in seconds since the epoch, or infinity.

    A Job without a limit has no deadline, and a Job that has not started has none yet.
    """
    limit = job["spec"].get("activeDeadlineSeconds")
    started = job.get("status", {}).get("startTime")
    if not limit or not started:
        return float("inf")
    return parse_time(started) + float(limit)


def seconds_left(job: Object, wall: float) -> float:
    """Return the seconds until this master stops waiting because of the Job's deadline."""
    return deadline(job) - wall - END_BEFORE


def interruption(job: Object | None, wall: float) -> RunError:
    """Return the error that explains why the master was asked to end; `job` None: it is gone.

    The Job creates another master for its exit code (podFailurePolicy), whatever the launcher's
    code was.
    """
    if job is None:
        why = "the master was terminated: an upgrade or an uninstall removed its Job"
    elif job.get("spec", {}).get("suspend"):
        why = "the master was terminated: its Job was suspended"
    elif is_withdrawn(job):
        why = "the master was terminated: its Job was deleted"
    elif failure_reason(job) == "DeadlineExceeded" or wall + FIRST_BACKOFF >= deadline(job):
        # The controller may end the pod before the Job's condition says why.
        limit = job["spec"].get("activeDeadlineSeconds")
        why = f"the run took longer than `master.activeDeadlineSeconds={limit}`"
    else:
        why = "the master was terminated: its pod was deleted or evicted"
    return InterruptedRunError(why)
