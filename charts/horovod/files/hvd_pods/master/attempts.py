"""The attempts at a run that one master makes, on the running workers.

A failed attempt ends neither the master nor the workers: the next one only waits for hosts that are
missing. The Job makes another master for a master that is lost, which counts on in the record.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Callable, NamedTuple

from hvd_pods.common.errors import (
    BAD_CONFIGURATION,
    HostsTimeoutError,
    LostHostError,
    NotANumberError,
    RunError,
)
from hvd_pods.common.reporting import log
from hvd_pods.master.kube import Object

# The name by which ranks know the number of their attempt, from 1.
ATTEMPT = "HVD_ATTEMPT"
# A launcher that ran for this many seconds had trained: what failed then is not what the script
# does first, and the next attempt begins at once.
TRAINED_AFTER = 60.0
# Seconds before the second, third, ... attempt in a row that fails sooner: doubled, up to the last.
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
# Seconds within which a request to end is noticed in a pause.
STOP_CHECK_EVERY = 0.2


class Count(NamedTuple):
    """How many attempts at a run have begun, and how many of them have failed."""

    attempts: int = 0
    failures: int = 0

    def begin(self) -> Count:
        """Count an attempt, and let its ranks know its number."""
        os.environ[ATTEMPT] = str(self.attempts + 1)
        return self._replace(attempts=self.attempts + 1)

    def fail(self) -> Count:
        """Count a failure."""
        return self._replace(failures=self.failures + 1)


class Retries:
    """Decides whether another attempt follows a failed one, and when.

    `limit`: how many failures may be followed by another attempt; None where the Job says it.
    `job`: as the master's start found it. After a failure, its answer may come too late.
    """

    def __init__(self, limit: int | None, job: Object | None = None) -> None:
        self._limit = limit
        self._lost_masters = 0
        self._note_limit(job)
        self._quick = 0
        self._furthest = 0
        self._last = ""

    def pause(
        self, problem: RunError, seconds: float, failures: int, job: Object | None, step: int = 0
    ) -> float:
        """Return the seconds until the next attempt; a negative number when none follows.

        `seconds`: how long the launcher ran. `failures`: of all attempts, this one included.
        `step`: the last one that the script has reported, 0 without such a report. `job` has the
        limit, which an upgrade may have changed; while it cannot be read, the last one counts, and
        there is none before it was read once.
        """
        self._note_limit(job)
        limit = sys.maxsize if self._limit is None else self._limit
        left = limit - failures - self._lost_masters + 1
        if problem.exit_code == BAD_CONFIGURATION or left <= 0:
            return -1.0
        if isinstance(problem, HostsTimeoutError):
            log("the run is not retried: another attempt would wait for the same hosts")
            return -1.0
        repeats = getattr(problem, "repeats", "")
        is_same = repeats != "" and repeats == self._last
        self._last = repeats
        # An attempt that came further than all before had trained, too.
        has_trained = seconds >= TRAINED_AFTER or step > self._furthest
        self._furthest = max(self._furthest, step)
        if is_same and (not has_trained or isinstance(problem, NotANumberError)):
            log("the run is not retried: the script failed twice in the same way")
            return -1.0
        # A host that is lost is no failure of the script, which may wait for the host anyway.
        is_honest = has_trained or isinstance(problem, LostHostError)
        self._quick = 0 if is_honest else self._quick + 1
        pause = 0.0
        if self._quick > 1:
            pause = min(FIRST_PAUSE * 2 ** (self._quick - 2), LONGEST_PAUSE)
        when = f"in {pause:.0f} s" if pause else "at once"
        how_many = f"{left} of {limit} retries are left"
        if self._limit is None:
            how_many = "the Job, which has the number of retries, cannot be read"
        log(f"the next attempt begins {when}; {how_many}")
        return pause

    def _note_limit(self, job: Object | None) -> None:
        if job and "backoffLimit" in job["spec"]:
            self._limit = int(job["spec"]["backoffLimit"])
            self._lost_masters = int(job.get("status", {}).get("failed") or 0)


def wait(seconds: float, is_stopped: Callable[[], bool]) -> bool:
    """Wait before the next attempt; False when this pod is asked to end."""
    until = time.monotonic() + seconds
    while not is_stopped():
        left = until - time.monotonic()
        if left <= 0:
            return True
        time.sleep(min(STOP_CHECK_EVERY, left))
    return False
