"""Whether another attempt follows a failed one, and when.

A failed attempt ends neither the master nor the workers: the next attempt only waits for missing
workers. The Job creates another master for a lost one. The new master continues the counts in the
record.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Callable, NamedTuple

from hvd_pods.rules.job_state import JobReading
from hvd_pods.shared.errors import (
    LostWorkerError,
    NotANumberError,
    ResizedError,
    RunError,
    WorkersTimeoutError,
    WorkerTerminatedError,
)
from hvd_pods.shared.exit_codes import BAD_CONFIGURATION

# A launcher that ran for this many seconds had trained: the failure is not in the start of the
# script, and the next attempt begins at once.
MIN_TRAINING_SECONDS = 60.0
# Attempts in a row, without progress, that do not count as failures if they end because workers
# left. Later ones count. A rolling upgrade of the nodes may leave no time between two drains.
MAX_UNCOUNTED_ATTEMPTS = 50
# Seconds before the second, third, ... attempt in a row that fails sooner: doubled, up to the
# maximum.
FIRST_RETRY_DELAY_SECONDS = 5.0
MAX_RETRY_DELAY_SECONDS = 300.0
# Enough to reach the maximum. Without a limit, the delay would have no float after a thousand
# attempts.
MAX_DOUBLINGS = 10


@dataclass(frozen=True)
class Verdict:
    """The decision after a failure: seconds until the next attempt or None, and the log message.

    `retries` is the state for the next verdict. `failures`: of all attempts, this one included if
    it counts. `is_change`: nothing has failed, but the next attempt has other workers.
    """

    retries: Retries
    failures: int
    delay_seconds: float | None
    explanation: str = ""
    is_change: bool = False


@dataclass(frozen=True)
class Retries:
    """The state that decides about the next attempt."""

    # The number of failures that another attempt may follow. It is in the Job: None while the Job
    # could not be read. The run is then retried.
    limit: int | None = None
    lost_masters: int = 0
    # Attempts in a row that failed before they had trained.
    early_failures: int = 0
    # Attempts in a row that did not count as failures and made no progress.
    uncounted_attempts: int = 0
    # The furthest step of all attempts, and the last failure that is sure to happen again.
    furthest_step: int = 0
    last_error: str = ""

    def note_job(self, job: JobReading) -> Retries:
        """Take the limit from the Job, if it was read: an upgrade may have changed it."""
        if "backoffLimit" not in job.spec:
            return self
        return replace(self, limit=int(job.spec["backoffLimit"]), lost_masters=job.failed)

    def judge(
        self,
        problem: RunError,
        seconds: float,
        failures: int,
        step: int,
        *,
        is_elastic: bool = False,
    ) -> Verdict:
        """Decide about the attempt after one that failed.

        `seconds`: how long the launcher ran. `failures`: of the attempts before. `step`: the last
        one that the script has reported, 0 without such a report. `is_elastic`: the run continues
        with fewer workers, so that a lost worker is not a failure.
        """
        # An attempt that made more progress than all earlier ones had trained, too.
        has_trained = seconds >= MIN_TRAINING_SECONDS or step > self.furthest_step
        after = replace(self, furthest_step=max(self.furthest_step, step))
        if isinstance(problem, ResizedError):
            return Verdict(after, failures, 0.0, "the next attempt begins at once", is_change=True)
        if not _has_worker_left(problem, is_elastic):
            after = replace(after, uncounted_attempts=0)
            return after._judge_failure(problem, failures + 1, has_trained)
        uncounted = 0 if has_trained else self.uncounted_attempts + 1
        after = replace(after, uncounted_attempts=uncounted)
        if uncounted > MAX_UNCOUNTED_ATTEMPTS:
            return after._judge_failure(problem, failures + 1, has_trained)
        message = "the next attempt begins at once; this one does not count as a failure"
        return Verdict(after, failures, 0.0, message, is_change=is_elastic)

    def _judge_failure(self, problem: RunError, failures: int, has_trained: bool) -> Verdict:
        """Decide about the attempt after a failure, the last one of `failures`."""
        limit = sys.maxsize if self.limit is None else self.limit
        retries_left = limit - failures - self.lost_masters + 1
        failure = Failure(problem, has_trained, self.last_error, retries_left)
        after = self._note_failure(problem, has_trained)
        for applies, reason in FINAL_FAILURES:
            if applies(failure):
                message = f"the run is not retried: {reason}" if reason else ""
                return Verdict(after, failures, None, message)
        delay_seconds = after._find_delay()
        when = f"in {delay_seconds:.0f} s" if delay_seconds else "at once"
        how_many = f"{retries_left} of {limit} retries are left"
        if self.limit is None:
            how_many = "the Job, which has the number of retries, cannot be read"
        return Verdict(
            after, failures, delay_seconds, f"the next attempt begins {when}; {how_many}"
        )

    def _note_failure(self, problem: RunError, has_trained: bool) -> Retries:
        # A lost worker is not a failure of the script. The next attempt may wait for the worker
        # anyway.
        is_early = not (has_trained or isinstance(problem, LostWorkerError))
        early_failures = self.early_failures + 1 if is_early else 0
        return replace(self, last_error=problem.repeats, early_failures=early_failures)

    def _find_delay(self) -> float:
        if self.early_failures <= 1:
            return 0.0
        doublings = min(self.early_failures - 2, MAX_DOUBLINGS)
        return min(FIRST_RETRY_DELAY_SECONDS * (1 << doublings), MAX_RETRY_DELAY_SECONDS)


def _has_worker_left(problem: RunError, is_elastic: bool) -> bool:
    """Whether the attempt only ended because a worker left, which is no failure of the run."""
    is_lost = isinstance(problem, LostWorkerError)
    return isinstance(problem, WorkerTerminatedError) or (is_elastic and is_lost)


class Failure(NamedTuple):
    """A failed attempt that counts as a failure.

    `last_error`: `repeats` of the failure before. `left`: the retries that were left.
    """

    problem: RunError
    has_trained: bool
    last_error: str
    left: int

    def has_wrong_configuration(self) -> bool:
        """Whether the user must change the run first."""
        return self.problem.exit_code == BAD_CONFIGURATION

    def is_last(self) -> bool:
        """Whether all retries are used."""
        return self.left <= 0

    def lacks_workers(self) -> bool:
        """Whether missing workers did not come in time."""
        return isinstance(self.problem, WorkersTimeoutError)

    def is_permanent(self) -> bool:
        """Whether any attempt fails from this before it trains."""
        return self.problem.is_permanent and not self.has_trained

    def is_repeated(self) -> bool:
        """Whether the failure before had the same cause, which training does not avoid."""
        is_same = self.problem.repeats != "" and self.problem.repeats == self.last_error
        return is_same and (not self.has_trained or isinstance(self.problem, NotANumberError))


# Which failures no attempt follows, and the reason for the log. The first one that applies counts.
# The reason is empty where the message of the failure is enough.
FINAL_FAILURES: tuple[tuple[Callable[[Failure], bool], str], ...] = (
    (Failure.has_wrong_configuration, ""),
    (Failure.is_last, ""),
    (Failure.lacks_workers, "another attempt would wait for the same workers"),
    (Failure.is_permanent, "another attempt would fail in the same way"),
    (Failure.is_repeated, "the script failed twice in the same way"),
)
