"""What this master knows of its Job: how long the Job goes on, and who has stopped it."""

from __future__ import annotations

import enum
import sys
from typing import Any, Mapping, NamedTuple

from hvd_pods.shared.contract import QUEUE
from hvd_pods.shared.errors import InterruptedRunError, RunError
from hvd_pods.shared.exit_codes import BAD_CONFIGURATION
from hvd_pods.shared.objects import Object, parse_time

# Seconds that the Job controller waits before the next attempt: doubled with each failure.
# kubernetes.io/docs/concepts/workloads/controllers/job, "Pod backoff failure policy".
FIRST_BACKOFF_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 360.0
# Stop waiting this many seconds before the Job's deadline: the deadline fails the Job.
DEADLINE_RESERVE_SECONDS = 15.0
NO_FIELDS: Object = {"metadata": {}, "spec": {}}


class JobKind(enum.Enum):
    """What a read of this master's Job has shown."""

    FOUND = "found"
    # The workers belong to another Job's run.
    REPLACED = "replaced"
    # No other Job has replaced it.
    DELETED = "deleted"
    # Nothing is known: another attempt may follow a failure.
    UNREADABLE = "unreadable"
    # This master has not read it yet, or has no access to the API.
    NOT_READ = "not read"


class JobReading(NamedTuple):
    """A reading of this master's Job. `job` has fields only if the Job was found."""

    kind: JobKind
    job: Object = NO_FIELDS

    @property
    def is_own(self) -> bool:
        """Whether the API server was asked, and no other Job has replaced this master's Job."""
        return self.kind not in (JobKind.REPLACED, JobKind.NOT_READ)

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations of the Job; none if it was not found."""
        annotations: Mapping[str, str] = self.job["metadata"].get("annotations", {})
        return annotations

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec of the Job; empty if it was not found."""
        spec: Mapping[str, Any] = self.job.get("spec", {})
        return spec

    @property
    def failed(self) -> int:
        """The number of the Job's masters that have failed."""
        return int(self._status.get("failed") or 0)

    @property
    def failure_reason(self) -> str:
        """Why the Job controller creates no more pods; empty while it may."""
        for condition in self._conditions:
            # FailureTarget comes first (Kubernetes 1.31), Failed when the last pod has ended.
            if condition["type"] in ("FailureTarget", "Failed") and condition["status"] == "True":
                return str(condition.get("reason") or condition["type"])
        return ""

    @property
    def is_suspended(self) -> bool:
        """Whether a person or a queue has suspended the Job."""
        return bool(self.spec.get("suspend"))

    @property
    def is_withdrawn(self) -> bool:
        """Whether a person or a queue has stopped the run: the Job is deleted or suspended."""
        is_deleted = self.kind == JobKind.DELETED or "deletionTimestamp" in self.job["metadata"]
        return is_deleted or self.is_suspended

    @property
    def is_over(self) -> bool:
        """Whether the Job has no pod and creates none: it has ended or is suspended."""
        ends = ("Complete", "Failed")
        ended = any(
            condition["type"] in ends and condition["status"] == "True"
            for condition in self._conditions
        )
        return ended or self.is_suspended

    @property
    def backoff_seconds(self) -> float:
        """The seconds that the Job controller waits before the next master."""
        return float(min(FIRST_BACKOFF_SECONDS * 2 ** min(self.failed, 10), MAX_BACKOFF_SECONDS))

    @property
    def deadline(self) -> float:
        """When the Job controller ends the run, in seconds since the epoch, or infinity.

        A Job without a limit has no deadline, and a Job that has not started has none yet.
        """
        limit = self.spec.get("activeDeadlineSeconds")
        started = self._status.get("startTime")
        if not limit or not started:
            return float("inf")
        return parse_time(started) + float(limit)

    @property
    def _status(self) -> Mapping[str, Any]:
        status: Mapping[str, Any] = self.job.get("status", {})
        return status

    @property
    def _conditions(self) -> list[Mapping[str, Any]]:
        return self._status.get("conditions") or []

    def seconds_left(self, wall: float) -> float:
        """Return the seconds until this master stops waiting because of the Job's deadline."""
        return self.deadline - wall - DEADLINE_RESERVE_SECONDS

    def will_retry(self, code: int, wall: float) -> bool:
        """Return whether the Job makes another master after this one, which ends with `code`.

        An eviction does not count as a failure, but looks like a deletion, which does. So this may
        be False although another master follows: it scales the workers up again. A master that
        waits in a queue cannot do that: with a queue, each interruption is treated as a preemption.
        """
        if code in (0, BAD_CONFIGURATION) or self.failure_reason:
            return False
        is_preempted = code == InterruptedRunError.exit_code and QUEUE in self.annotations
        if self.failed >= int(self.spec.get("backoffLimit", sys.maxsize)) and not is_preempted:
            return False
        # If the deadline passes between two masters, no master scales the workers down.
        return wall + self.backoff_seconds < self.deadline

    def is_continued(self, wall: float) -> bool:
        """Return whether the Job makes another master if this unfinished one is terminated."""
        is_sure = self.kind == JobKind.FOUND and not self.is_withdrawn
        return is_sure and self.will_retry(InterruptedRunError.exit_code, wall)


REPLACED = JobReading(JobKind.REPLACED)
DELETED = JobReading(JobKind.DELETED)
UNREADABLE = JobReading(JobKind.UNREADABLE)
NOT_READ = JobReading(JobKind.NOT_READ)


def read_found_job(job: Object) -> JobReading:
    """Return the reading of a Job that was found."""
    return JobReading(JobKind.FOUND, job)


def interruption(job: JobReading, wall: float) -> RunError:
    """Return the error that explains why the master was asked to end.

    The Job creates another master for its exit code (podFailurePolicy), whatever the launcher's
    code was.
    """
    if not job.is_own:
        reason = "the master was terminated: an upgrade or an uninstall removed its Job"
    elif job.is_suspended:
        reason = "the master was terminated: its Job was suspended"
    elif job.is_withdrawn:
        reason = "the master was terminated: its Job was deleted"
    elif job.failure_reason == "DeadlineExceeded" or wall + FIRST_BACKOFF_SECONDS >= job.deadline:
        # The controller may end the pod before the Job's condition says why.
        limit = job.spec.get("activeDeadlineSeconds")
        reason = f"the run took longer than `master.activeDeadlineSeconds={limit}`"
    else:
        reason = "the master was terminated: its pod was deleted or evicted"
    return InterruptedRunError(reason)
