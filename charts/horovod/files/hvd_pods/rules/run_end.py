"""Rules of the end: the Job's state, whether the run is over, and what happens to the workers."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Mapping

from hvd_pods.cluster.objects import AGAIN_RETRY_SECONDS, Object, parse_time
from hvd_pods.rules.effects import Exit, ListPods, ReadJob, ReportFailure, ScaleDown, StoreResults
from hvd_pods.rules.events import PodsListed, ResultsStored
from hvd_pods.rules.state import END, Activity, Decision
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.contract import CLEANUP, QUEUE
from hvd_pods.shared.errors import (
    ConfigurationError,
    InterruptedRunError,
    RunError,
    SupersededError,
)
from hvd_pods.shared.exit_codes import BAD_CONFIGURATION
from hvd_pods.shared.record import FAILED, FINISHED, LEASE_KEPT, RUNNING, STORED, RecordKey
from hvd_pods.shared.run_events import RunEvent

# Seconds that the Job controller waits before the next attempt: doubled with each failure.
# kubernetes.io/docs/concepts/workloads/controllers/job, "Pod backoff failure policy".
FIRST_BACKOFF = 10.0
LONGEST_BACKOFF = 360.0
# Stop storing results this many seconds before the Job's deadline: the deadline fails the Job.
END_BEFORE = 15.0
# The result of a check for workers of the next admission: a pod that is not about to end, or no
# pod.
STAYS = "stays"
NONE = "none"
# Seconds between two checks; for which a pod must stay; in which a StatefulSet without pods creates
# some; and of its grace period that the master keeps.
LOOK_FOR_SUCCESSORS_EVERY = 0.5
STAYS_WITHIN = 1.0
SUCCESSORS_WITHIN = 5.0
KEPT_OF_GRACE = 3.0
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


def announce(decision: Decision, problem: RunError) -> None:
    """Write why the run failed to the log, the termination message and an event."""
    decision.add_effects(ReportFailure(problem))
    decision.report(RunEvent.FAILED, str(problem))


def repeat_end(decision: Decision, earlier: Mapping[str, str]) -> None:
    """Report the earlier end of this run from the record, instead of running it again."""
    result = f"this run already {earlier[RecordKey.STATE].lower()} at {earlier.get(RecordKey.TIME)}"
    remedy = "to run the same values again, increment `master.generation`"
    problem: RunError | None = None
    if earlier[RecordKey.STATE] == FINISHED:
        decision.log(f"{result}: nothing to do; {remedy}")
        decision.report(RunEvent.FINISHED, f"{result}; {remedy}")
    else:
        problem = ConfigurationError(f"{result}: {earlier.get(RecordKey.REASON)}; {remedy}")
        announce(decision, problem)
    decision.state = replace(decision.state, activity=Activity.FINISHING, problem=problem)
    decision.add_effects(ReadJob(AGAIN_RETRY_SECONDS))


def finish(decision: Decision, problem: RunError | None) -> None:
    """Record how the run ended and scale the workers down, unless another master continues it.

    `problem` is None for a finished run.
    """
    state = decision.state
    code = problem.exit_code if problem else 0
    decision.state = replace(decision.state, activity=Activity.FINISHING, problem=problem)
    if state.record_lock.lost_to:
        end_or_keep_workers(decision)
    elif not state.run.has_api_access:
        if state.run.cleanup != "Never":
            decision.log("the workers stay: without a service account the master cannot scale them")
        store_results(decision)
    elif state.job is None:
        decision.log("the workers are not scaled down: the next run of the release may use them")
        store_results(decision)
    elif problem and is_withdrawn(state.job):
        # Only this master can scale the workers down. The run may continue later.
        decision.set_entry(RUNNING, str(problem))
        decision.write_record(END, retry_seconds=None)
    elif state.is_terminating and will_retry(state.job, code, decision.wall):
        store_results(decision)
    else:
        decision.set_entry(FAILED if problem else FINISHED, str(problem or ""))
        decision.write_record(END, retry_seconds=None)


def scale_down(decision: Decision) -> None:
    """Scale the workers to 0 if `cleanup` asks for that; an upgrade may have changed it."""
    state = decision.state
    job = decision.state.job or UNREADABLE
    cleanup = job["metadata"].get("annotations", {}).get(CLEANUP, state.run.cleanup)
    is_wanted = cleanup == "Always" or state.problem is None or is_withdrawn(job)
    # With any `cleanup`, a suspended run has no workers. Neither has a run whose command no longer
    # renews the lease, nor a session's run that was withdrawn.
    is_forgotten = state.lease.has_ended or bool(state.lease.seconds and is_withdrawn(job))
    if (is_wanted and cleanup != "Never") or is_forgotten or job["spec"].get("suspend"):
        decision.state = replace(decision.state, are_workers_gone=True)
        decision.add_effects(ScaleDown())
    else:
        store_results(decision)


def leave_workers(decision: Decision) -> None:
    """Leave the workers as they are: they may be another master's."""
    names = " ".join(decision.state.run.stateful_sets)
    decision.log(
        "the workers are not scaled down: nothing shows that no other master has them; to do it "
        f"yourself: kubectl scale statefulset --replicas 0 {names}"
    )
    store_results(decision)


def store_results(decision: Decision) -> None:
    """Store the results if the run has ended and asks for that; then end this master."""
    state = decision.state
    run = decision.state.run
    problem = decision.state.problem
    is_wanted = run.results_timeout_seconds and (problem is None or run.results_on_failure)
    has_result = not isinstance(problem, InterruptedRunError)
    if not (has_result and is_wanted) or state.results == STORED:
        end_or_keep_workers(decision)
        return
    left = (
        deadline(state.job) - decision.wall - END_BEFORE
        if state.job
        else run.results_timeout_seconds
    )
    decision.state = replace(decision.state, activity=Activity.STORING)
    decision.add_effects(StoreResults(min(left, run.results_timeout_seconds)))


def on_results(decision: Decision, event: ResultsStored) -> None:
    """Note whether the results are stored. The outcome of the training stays the same."""
    state = decision.state
    problem = decision.state.problem
    decision.state = replace(decision.state, results=event.failure or STORED)
    if state.entry:
        decision.state = replace(
            decision.state, entry={**state.entry, RecordKey.RESULTS: decision.state.results}
        )
    # Write this now: the following release of the record is retried only for seconds.
    decision.write_record("results", retry_seconds=None)
    if not event.failure:
        decision.log("the results are stored")
        decision.report(RunEvent.RESULTS_STORED, "the results are stored")
        end_or_keep_workers(decision)
        return
    text = f"the results could not be stored: {event.failure}"
    decision.report(RunEvent.RESULTS_NOT_STORED, text)
    if problem:
        decision.log(text)
    else:
        # The training has finished: the termination message is otherwise empty.
        decision.add_effects(ReportFailure(RunError(text)))
    again = InterruptedRunError(text)
    if state.is_terminating and state.job and will_retry(state.job, again.exit_code, decision.wall):
        # Another master stores the results.
        decision.state = replace(decision.state, problem=again)
    end_or_keep_workers(decision)


def end_or_keep_workers(decision: Decision) -> None:
    """Release the record and end, or wait for the session's next run."""
    if not _are_left(decision):
        end_master(decision)
    elif decision.state.is_terminating:
        _begin_keeping_workers(decision)
        look_before_end(decision)
    else:
        keep_workers(decision)


def _are_left(decision: Decision) -> bool:
    """Return whether this master must watch workers that are left for the session's next run."""
    state = decision.state
    job = state.job
    # Keep watching a known lease if the Job could not be read at the end.
    is_own = job is not None and not is_withdrawn(job)
    is_replaced = bool(state.record_lock.lost_to) or isinstance(state.problem, SupersededError)
    return bool(state.lease.seconds and is_own and not (is_replaced or state.are_workers_gone))


def keep_workers(decision: Decision) -> None:
    """Wait, while the workers stay for the session's next run, until its lease has ended.

    The master keeps the record, so that no other master gets the workers. The Job's deadline would
    end this pod before the lease.
    """
    _begin_keeping_workers(decision)
    if decision.lease.has_ended:
        scale_down_kept(decision)
        return
    decision.lease = replace(decision.lease, note=LEASE_KEPT)
    decision.write_record("keep workers")
    decision.log("the workers stay for the session's next run, as long as its lease is renewed")
    watch_deadline(decision, decision.state.job or UNREADABLE)


def _begin_keeping_workers(decision: Decision) -> None:
    decision.state = replace(decision.state, activity=Activity.KEEPING_WORKERS)
    timers = decision.state.timers
    decision.clear_timers(
        *(name for name in timers if name not in (TimerKind.RENEW, TimerKind.LEASE))
    )


def watch_deadline(decision: Decision, job: Object) -> None:
    """Stop keeping the workers before the deadline of the Job that was just read."""
    left = deadline(job) - decision.wall - END_BEFORE
    if left < float("inf"):
        decision.set_timer(TimerKind.KEEP_WORKERS, decision.now + max(0.0, left))
    else:
        decision.clear_timers(TimerKind.KEEP_WORKERS)


def look_before_end(decision: Decision) -> None:
    """Read the Job again before this terminating pod scales the workers down."""
    decision.add_effects(ReadJob(AGAIN_RETRY_SECONDS))


def end_terminated(decision: Decision, job: Object | None) -> None:
    """Keep the workers no longer in a terminating pod: no other process watches the lease.

    Leave the workers to another master if an upgrade has replaced the Job, or if the Job creates
    another master that continues the run.
    """
    is_unfinished = isinstance(decision.state.problem, InterruptedRunError)
    if job is None or job == UNREADABLE or (is_unfinished and is_continued(job, decision.wall)):
        end_master(decision)
    else:
        scale_down_kept(decision)


def scale_down_kept(decision: Decision) -> None:
    """Scale down the workers that have stayed for the session's next run."""
    if decision.state.are_workers_gone:
        return
    if not decision.lease.has_ended:
        decision.lease = replace(decision.lease, note="")
    decision.state = replace(decision.state, are_workers_gone=True)
    decision.add_effects(ScaleDown())


def end_master(decision: Decision) -> None:
    """Release the record, and end."""
    decision.state = replace(decision.state, activity=Activity.OVER, timers={})
    decision.release_record()


def is_preempted(decision: Decision) -> bool:
    """Return whether a queue has preempted this pod; the run continues after an admission.

    With a queue, any other interruption is treated as a preemption, too.
    """
    state = decision.state
    job = state.job
    is_queued = job is not None and QUEUE in job["metadata"].get("annotations", {})
    is_interrupted = isinstance(state.problem, InterruptedRunError) and state.is_terminating
    return bool(is_interrupted and is_queued and job and not is_withdrawn(job))


def hand_over(decision: Decision) -> None:
    """Stay until the queue sees another pod of the run. This is the last task of the master.

    Kueue declares a run finished when all pods that it sees have ended, and the workers of a
    preempted run end at the same time, before their StatefulSet makes the first new one.
    """
    decision.state = replace(decision.state, activity=Activity.HANDING_OVER)
    look_for_successors(decision)


def look_for_successors(decision: Decision) -> None:
    """List the pods, if this pod may still stay."""
    state = decision.state
    if decision.now >= state.terminating_since + state.run.grace_seconds - KEPT_OF_GRACE:
        decision.add_effects(Exit(state.problem))
    else:
        decision.add_effects(ListPods(state.attempt.number, ()))


def on_successors(decision: Decision, event: PodsListed) -> None:
    """End if a worker's pod stays, or if no pods are created: the run was uninstalled.

    Either must last for a time: a queue deletes the pods of a run one after the other.
    """
    seen = ""
    if any(map(_will_stay, event.pods.values())):
        seen = STAYS
    elif not event.pods and not event.problem:
        seen = NONE
    if seen != decision.state.successors:
        decision.state = replace(decision.state, successors=seen, successors_since=decision.now)
    within = {STAYS: STAYS_WITHIN, NONE: SUCCESSORS_WITHIN}.get(seen, float("inf"))
    if decision.now - decision.state.successors_since >= within:
        decision.add_effects(Exit(decision.state.problem))
    else:
        decision.set_timer(TimerKind.SUCCESSORS, decision.now + LOOK_FOR_SUCCESSORS_EVERY)


def _will_stay(pod: Object) -> bool:
    has_ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not has_ended and "deletionTimestamp" not in pod["metadata"]
