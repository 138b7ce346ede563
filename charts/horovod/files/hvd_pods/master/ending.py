"""The end of an attempt: whether it was the run's last, and what happens to the workers."""

from __future__ import annotations

import os
import sys
import time

from hvd_pods.common.errors import BAD_CONFIGURATION, InterruptedRunError, RunError
from hvd_pods.common.reporting import log
from hvd_pods.common.run import Run
from hvd_pods.master.kube import Api, ApiError, Object, parse_time
from hvd_pods.master.record import FAILED, FINISHED, RunRecord
from hvd_pods.master.statefulsets import scale_to_zero

# Seconds that the Job controller waits before the next attempt: doubled with each failure.
# kubernetes.io/docs/concepts/workloads/controllers/job, "Pod backoff failure policy".
FIRST_BACKOFF, LONGEST_BACKOFF = 10.0, 360.0
# Seconds to wait for the condition DeadlineExceeded: the controller sets it when it ends the pod.
CONDITION_WITHIN = 10
# Seconds by which the clocks of the controller's machine and this one may differ.
CLOCK_SKEW = 60.0
# Stands for a Job that the API server did not show: another attempt may follow a failure.
UNREADABLE: Object = {"metadata": {}, "spec": {}}


def read_job(api: Api, stopped: bool, retry_seconds: float | None = None) -> Object | None:
    """Read the Job after this attempt; None when it was deleted or is being deleted.

    `stopped`: this pod was asked to end, of which the Job's deadline may be the reason.
    UNREADABLE when the API server does not show it, within `retry_seconds` if that is not None.
    """
    name = os.environ["HVD_JOB"]
    try:
        job = api.get(f"batch/jobs/{name}", retry_seconds=retry_seconds, timeout=retry_seconds)
    except ApiError as problem:
        log(f"cannot read the Job: {problem}")
        # An upgrade removes the Job, and its Role names the new one only.
        return None if problem.status in (403, 404) else UNREADABLE
    if stopped and not failure_reason(job) and time.time() > deadline(job) - CLOCK_SKEW:
        job = _wait_for_failure(api, name, job)
    return None if "deletionTimestamp" in job["metadata"] else job


def _wait_for_failure(api: Api, name: str, job: Object) -> Object:
    """Return the Job as soon as it has failed, or as it is after CONDITION_WITHIN seconds."""
    query = {"fieldSelector": f"metadata.name={name}", "timeoutSeconds": str(CONDITION_WITHIN)}
    try:
        for event in api.watch("batch/jobs", query):
            if event["type"] != "ERROR":
                job = event["object"]
            if event["type"] in ("DELETED", "ERROR") or failure_reason(job):
                break
    except ApiError as problem:
        log(f"cannot watch the Job: {problem}")
    return job


def failure_reason(job: Object) -> str:
    """Return why the Job controller creates no more pods; empty while it may."""
    for condition in job.get("status", {}).get("conditions") or []:
        # FailureTarget comes first (Kubernetes 1.31), Failed when the last pod has ended.
        if condition["type"] in ("FailureTarget", "Failed") and condition["status"] == "True":
            return str(condition.get("reason") or condition["type"])
    return ""


def will_retry(job: Object, code: int, now: float) -> bool:
    """Whether the Job makes another attempt after this one, which ends with `code` at `now`.

    An eviction, which does not count as a failure, looks like a deletion, which does. So this may
    be False although another attempt follows: that one scales the workers up again.
    """
    if code in (0, BAD_CONFIGURATION) or failure_reason(job):
        return False
    failed = int(job.get("status", {}).get("failed", 0))
    if failed >= int(job["spec"].get("backoffLimit", sys.maxsize)):
        return False
    pause = min(FIRST_BACKOFF * 2**failed, LONGEST_BACKOFF)
    # If the deadline passes between two attempts, no master is there to scale the workers down.
    return bool(now + pause < deadline(job))


def deadline(job: Object) -> float:
    """When the Job controller ends the run, in seconds since the epoch."""
    limit = job["spec"].get("activeDeadlineSeconds")
    started = job.get("status", {}).get("startTime")
    if not limit or not started:
        return float("inf")
    return parse_time(started) + float(limit)


def interruption(job: Object | None) -> RunError:
    """Return the error that explains why the master was asked to end.

    By its exit code the Job makes another master (podFailurePolicy), whatever the launcher's was.
    """
    if job is None:
        why = "the master was terminated: an upgrade or an uninstall removed its Job"
    elif failure_reason(job) == "DeadlineExceeded":
        limit = job["spec"]["activeDeadlineSeconds"]
        why = f"the run took longer than master.activeDeadlineSeconds={limit}"
    else:
        why = "the master was terminated: its pod was deleted or evicted, or its Job suspended"
    return InterruptedRunError(why)


def finish(
    run: Run,
    api: Api,
    job: Object | None,
    record: RunRecord,
    problem: RunError | None,
    stopped: bool,
) -> None:
    """Record how the run ended and scale the workers down, unless another master continues it.

    `stopped`: this pod was asked to end, so that its Job may make another one.
    """
    code = problem.exit_code if problem else 0
    if job is None:
        log("the workers are not scaled down: the next run of the release may use them")
    elif not (stopped and will_retry(job, code, time.time())):
        record.write(FAILED if problem else FINISHED, str(problem or ""))
        if not record.lost:
            scale_down(run, api, code)


def scale_down(run: Run, api: Api, code: int) -> None:
    """Scale the workers to 0 if `cleanup` asks for that after a run that ended with `code`."""
    if run.cleanup == "Always" or (run.cleanup == "OnSuccess" and code == 0):
        scale_to_zero(api, run.stateful_sets)


def present_cleanup(run: Run, job: Object | None) -> str:
    """The value `cleanup`, which an upgrade may have changed since the master started."""
    annotations = job["metadata"].get("annotations") or {} if job else {}
    return str(annotations.get("horovod/cleanup", run.cleanup))
