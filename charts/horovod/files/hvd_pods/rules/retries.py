"""Whether another attempt follows a failed one, and when.

A failed attempt ends neither the master nor the workers: the next attempt only waits for missing
workers. The Job creates another master for a lost one. The new master continues the counts in the
record.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from hvd_pods.cluster.objects import Object
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
TRAINED_AFTER = 60.0
# Attempts in a row, without progress, that do not count as failures if they end because workers
# left. Later ones count. A rolling upgrade of the nodes may leave no time between two drains.
MOST_UNCOUNTED = 50
# Seconds before the second, third, ... attempt in a row that fails sooner: doubled, up to the
# maximum.
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 300.0


@dataclass(frozen=True)
class Verdict:
    """The decision after a failure: seconds until the next attempt or None, and the log message.

    `retries` is the state for the next verdict. `failures`: of all attempts, this one included if
    it counts. `is_change`: nothing has failed, but the next attempt has other workers.
    """

    retries: Retries
    failures: int
    pause: float | None
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

    def note_job(self, job: Object | None) -> Retries:
        """Take the limit from the Job, if it was read: an upgrade may have changed it."""
        if not job or "backoffLimit" not in job["spec"]:
            return self
        failed = int(job.get("status", {}).get("failed") or 0)
        return replace(self, limit=int(job["spec"]["backoffLimit"]), lost_masters=failed)

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
        uncounted = 0
        if isinstance(problem, ResizedError):
            changed = replace(self, furthest_step=max(self.furthest_step, step))
            why = "the next attempt begins at once"
            return Verdict(changed, failures, 0.0, why, is_change=True)
        if isinstance(problem, WorkerTerminatedError) or (
            is_elastic and isinstance(problem, LostWorkerError)
        ):
            came_further = step > self.furthest_step or seconds >= TRAINED_AFTER
            uncounted = 0 if came_further else self.uncounted_attempts + 1
            if uncounted <= MOST_UNCOUNTED:
                changed = replace(
                    self, uncounted_attempts=uncounted, furthest_step=max(self.furthest_step, step)
                )
                why = "the next attempt begins at once; this one does not count as a failure"
                return Verdict(changed, failures, 0.0, why, is_change=is_elastic)
        failures += 1
        limit = sys.maxsize if self.limit is None else self.limit
        left = limit - failures - self.lost_masters + 1
        if problem.exit_code == BAD_CONFIGURATION or left <= 0:
            return Verdict(self, failures, None)
        if isinstance(problem, WorkersTimeoutError):
            why = "another attempt would wait for the same workers"
            return Verdict(self, failures, None, f"the run is not retried: {why}")
        is_same = problem.repeats != "" and problem.repeats == self.last_error
        # An attempt that made more progress than all earlier ones had trained, too.
        has_trained = seconds >= TRAINED_AFTER or step > self.furthest_step
        changed = replace(
            self,
            last_error=problem.repeats,
            uncounted_attempts=uncounted,
            furthest_step=max(self.furthest_step, step),
        )
        if problem.is_permanent and not has_trained:
            why = "another attempt would fail in the same way"
            return Verdict(changed, failures, None, f"the run is not retried: {why}")
        if is_same and (not has_trained or isinstance(problem, NotANumberError)):
            why = "the script failed twice in the same way"
            return Verdict(changed, failures, None, f"the run is not retried: {why}")
        # A lost worker is not a failure of the script. The next attempt may wait for the worker
        # anyway.
        is_early = not (has_trained or isinstance(problem, LostWorkerError))
        changed = replace(changed, early_failures=self.early_failures + 1 if is_early else 0)
        pause = 0.0
        if changed.early_failures > 1:
            pause = min(FIRST_PAUSE * 2 ** (changed.early_failures - 2), LONGEST_PAUSE)
        when = f"in {pause:.0f} s" if pause else "at once"
        how_many = f"{left} of {limit} retries are left"
        if self.limit is None:
            how_many = "the Job, which has the number of retries, cannot be read"
        return Verdict(changed, failures, pause, f"the next attempt begins {when}; {how_many}")
