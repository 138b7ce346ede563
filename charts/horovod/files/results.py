"""Has the results of the run stored at its end, by a command in a sidecar of the master.

That container, which runs files/results.sh, and the master share a directory. How the storing went
is recorded and told. It never changes how the training ended.
"""

from __future__ import annotations

import os
import time
from typing import Callable

from attempts import wait
from ending import deadline, read_job, will_retry
from events import EventRecorder
from kube import START_RETRY_SECONDS, Api
from record import RunRecord
from settings import GENERATED, InterruptedRunError, Run, RunError, log, report_failure

EXCHANGE = GENERATED / "results"
STORED = "Stored"
# How often the command is run at most, and seconds before the second time: doubled each time.
ATTEMPTS, FIRST_PAUSE = 4, 5.0
# Seconds for which the container may be starting again.
READY_WITHIN = 120.0
# Seconds before the Job's deadline at which the storing ends: the deadline would fail the Job.
END_BEFORE = 15.0
LOOK_EVERY = 0.2
TOO_LONG = "it took longer than results.timeoutSeconds, or than the Job may take"
SEE = "its log has the reason: kubectl logs POD --container results"
IsStopped = Callable[[], bool]


def store_results(
    run: Run,
    api: Api | None,
    events: EventRecorder,
    record: RunRecord,
    is_stopped: IsStopped,
    problem: RunError | None,
) -> RunError | None:
    """Have the results stored if this run has ended and asks for it. How the master ends then.

    That is as it ended before, but when it is asked to end meanwhile and its Job makes another one.
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
        events.tell("ResultsStored", "results.command ended with exit code 0")
        record.write_results(STORED)
        return problem
    text = f"the results are not stored: {failure}"
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
    """Run the command until it succeeds, at most ATTEMPTS times; why it did not, or nothing."""
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
            return "the master was asked to end meanwhile"
        if not is_asked:
            return f"the container results does not run; {SEE}"
        return TOO_LONG
    code, _, reason = answer.read_text().strip().partition(" ")
    return "" if code == "0" else f"{reason}; {SEE}"


def _ask() -> bool:
    """Ask the container to run the command; False when it does not wait to be asked."""
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
