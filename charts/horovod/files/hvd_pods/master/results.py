"""Stores the results when the run has ended: a sidecar of the master runs `results.command`.

The sidecar runs files/results.sh and shares a directory with the master. Success or failure is
recorded and becomes an event. Neither changes how the training ended.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Callable

from hvd_pods.common.errors import InterruptedRunError, RunError
from hvd_pods.common.paths import GENERATED
from hvd_pods.common.reporting import log, report_failure
from hvd_pods.common.run import Run
from hvd_pods.master.attempts import wait
from hvd_pods.master.ending import deadline, read_job, will_retry
from hvd_pods.master.events import EventRecorder
from hvd_pods.master.kube import START_RETRY_SECONDS, Api
from hvd_pods.master.record import RunRecord

EXCHANGE = GENERATED / "results"
STORED = "Stored"
# How often the command is run at most, and the seconds before the second time, which double with
# each further time.
ATTEMPTS, FIRST_PAUSE = 4, 5.0
# Seconds in which a container that has ended must be running again.
READY_WITHIN = 120.0
# Storing ends this many seconds before the Job's deadline, which would fail the Job.
END_BEFORE = 15.0
LOOK_EVERY = 0.2
TOO_LONG = "it took longer than results.timeoutSeconds or master.activeDeadlineSeconds allows"
IsStopped = Callable[[], bool]


def store_results(
    run: Run,
    api: Api | None,
    events: EventRecorder,
    record: RunRecord,
    is_stopped: IsStopped,
    problem: RunError | None,
) -> RunError | None:
    """Store the results if the run has ended and asks for that; return how the master ends.

    That is `problem`, except when this master is terminated meanwhile and its Job starts another
    one, which then stores the results.
    """
    is_over = not (record.lost or isinstance(problem, InterruptedRunError))
    is_wanted = run.results_within and (problem is None or run.results_on_failure)
    if not (is_over and is_wanted) or record.results == STORED:
        return problem
    job = read_job(api, stopped=False, retry_seconds=START_RETRY_SECONDS) if api else None
    left = deadline(job) - time.time() - END_BEFORE if job else run.results_within
    failure = _store(time.monotonic() + min(left, run.results_within), is_stopped)
    if not failure:
        log("the results are stored")
        events.note("ResultsStored", "results.command ended with exit code 0")
        record.write_results(STORED)
        return problem
    text = f"the results could not be stored: {failure}"
    events.warn("ResultsNotStored", text)
    record.write_results(failure)
    if problem:
        log(text)
    else:
        # The training has finished: nothing else is in the termination message.
        report_failure(RunError(text))
    interruption = InterruptedRunError(text)
    if is_stopped() and job and will_retry(job, interruption.exit_code, time.time()):
        return interruption
    return problem


def _store(until: float, is_stopped: IsStopped) -> str:
    """Run the command at most ATTEMPTS times; return why it failed, or "" when it succeeded."""
    pause = FIRST_PAUSE
    for left in reversed(range(ATTEMPTS)):
        failure = _try(until, is_stopped)
        if not failure or not left or is_stopped() or time.monotonic() + pause > until:
            break
        log(f"{failure}; trying again in {pause:.0f} s")
        if not wait(pause, is_stopped):
            break
        pause *= 2
    return failure


def _try(until: float, is_stopped: IsStopped) -> str:
    if time.monotonic() > until:
        return TOO_LONG
    answer = EXCHANGE / "answer"
    answer.unlink(missing_ok=True)
    log("storing the results")
    is_asked = _wait(_ask, min(until, time.monotonic() + READY_WITHIN), is_stopped)
    if not (is_asked and _wait(answer.exists, until, is_stopped)):
        if is_stopped():
            return "the master was terminated meanwhile"
        if not is_asked:
            return f"the container results is not running; {_see()}"
        return TOO_LONG
    code, _, reason = answer.read_text().strip().partition(" ")
    return "" if code == "0" else f"{reason}; {_see()}"


def _see() -> str:
    return f"for the reason, see kubectl logs {socket.gethostname()} --container results"


def _ask() -> bool:
    """Ask the container to run the command; False when it is not ready for a request."""
    try:
        go = os.open(EXCHANGE / "go", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        # The FIFO is not there yet, or nobody reads it.
        return False
    os.write(go, b"go\n")
    os.close(go)
    return True


def _wait(condition: Callable[[], bool], until: float, is_stopped: IsStopped) -> bool:
    while not condition():
        if is_stopped() or time.monotonic() > until:
            return False
        time.sleep(LOOK_EVERY)
    return True
