"""The end of an attempt: was it the run's last, and what becomes of the workers?"""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone

from kube import Api, ApiError, Object
from record import FAILED, FINISHED, Record
from settings import BAD_CONFIGURATION, LaunchError, Run, RunError, log
from statefulsets import scale

# Seconds that a Job's controller waits before it tries again: doubled with each failure.
FIRST_BACKOFF, LONGEST_BACKOFF = 10.0, 360.0
# Seconds in which it says that the deadline made it end the pod: it does so in the same breath.
VERDICT_WITHIN = 10
# Seconds by which the clocks of the controller's machine and this one may differ.
CLOCKS_DIFFER = 60.0


def find_job(api: Api, stopped: bool) -> Object | None:
    """The Job as it is after this attempt; None when it is gone or going."""
    name = os.environ["HVD_JOB"]
    try:
        job = api.get(f"batch/jobs/{name}")
        if stopped and not given_up(job) and time.time() > deadline(job) - CLOCKS_DIFFER:
            job = _await_verdict(api, name, job)
    except (ApiError, OSError) as problem:
        # An upgrade removes the Job, and its Role names the new one only.
        log(f"the Job is gone or cannot be read: {problem}")
        return None
    return None if "deletionTimestamp" in job["metadata"] else job


def _await_verdict(api: Api, name: str, job: Object) -> Object:
    """The Job once it is given up, or after a while as it then is."""
    query = {"fieldSelector": f"metadata.name={name}", "timeoutSeconds": str(VERDICT_WITHIN)}
    for event in api.watch("batch/jobs", query):
        if event["type"] != "ERROR":
            job = event["object"]
        if event["type"] in ("DELETED", "ERROR") or given_up(job):
            break
    return job


def given_up(job: Object) -> str:
    """The reason for which the Job's controller makes no further pod; empty while it may."""
    for condition in job.get("status", {}).get("conditions") or []:
        # FailureTarget comes first, Failed when the last pod has ended.
        if condition["type"] in ("FailureTarget", "Failed") and condition["status"] == "True":
            return str(condition.get("reason") or condition["type"])
    return ""


def may_try_again(job: Object, code: int, now: float) -> bool:
    """Will the Job make another attempt after this one, which ends with `code` at `now`?

    An eviction, which does not count, cannot be told from a deletion, which does: after the last
    failure allowed this says no, and an attempt that comes all the same asks for its workers again.
    """
    if code in (0, BAD_CONFIGURATION) or given_up(job):
        return False
    failed = int(job.get("status", {}).get("failed", 0))
    if failed >= int(job["spec"]["backoffLimit"]):
        return False
    pause = min(FIRST_BACKOFF * 2**failed, LONGEST_BACKOFF)
    # A deadline that passes while no master lives is one after which nobody could clean up.
    return bool(now + pause < deadline(job))


def deadline(job: Object) -> float:
    """When the Job's controller ends the run, in seconds since the epoch."""
    limit = job["spec"].get("activeDeadlineSeconds")
    started = job.get("status", {}).get("startTime")
    if not limit or not started:
        return float("inf")
    begun = datetime.strptime(started, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    return begun.timestamp() + float(limit)


def interruption(job: Object | None, code: int) -> RunError:
    """Why the master was asked to end."""
    if job is None:
        why = "the master was asked to end: an upgrade or an uninstall removed its Job"
    elif given_up(job) == "DeadlineExceeded":
        why = f"master.activeDeadlineSeconds={job['spec']['activeDeadlineSeconds']} is over"
    else:
        why = "the master was asked to end: its pod was deleted or evicted, or its Job suspended"
    return LaunchError(why, code)


def conclude(
    run: Run, api: Api, job: Object | None, record: Record, problem: RunError | None
) -> None:
    """Record how the run ended and let its workers go, unless it goes on or another took over."""
    code = problem.exit_code if problem else 0
    if job is None:
        log("the workers are left to what comes next")
    elif not may_try_again(job, code, time.time()):
        record.write(FAILED if problem else FINISHED, str(problem or ""))
        release_workers(run, api, code)


def release_workers(run: Run, api: Api, code: int) -> None:
    """Scale the workers to 0 where the values ask for it after an end with `code`."""
    if run.cleanup == "Never" or (run.cleanup == "OnSuccess" and code != 0):
        return
    try:
        scale(api, dict.fromkeys(run.stateful_sets, 0))
    except (ApiError, OSError) as problem:
        # The training's own result stands; the workers that were left are named.
        log(f"cannot scale {', '.join(run.stateful_sets)} to 0: {problem}")
    else:
        log("workers scaled to 0")
