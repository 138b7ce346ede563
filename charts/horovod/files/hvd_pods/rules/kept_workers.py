"""Rules of workers that stay after a session's run, for its next run."""

from __future__ import annotations

from dataclasses import replace

from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import RESTART_RETRY_SECONDS, ReadJob, ScaleDown
from hvd_pods.rules.events import RecordPurpose
from hvd_pods.rules.job_state import JobKind, JobReading
from hvd_pods.rules.run_state import Activity
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.errors import InterruptedRunError, SupersededError
from hvd_pods.shared.record import LEASE_KEPT


def are_left(decision: Decision) -> bool:
    """Return whether this master must watch workers that are left for the session's next run."""
    state = decision.state
    # Keep watching a known lease if the Job could not be read at the end.
    is_own = state.job.is_own and not state.job.is_withdrawn
    is_replaced = bool(state.record_lock.lost_to) or isinstance(state.problem, SupersededError)
    return bool(state.lease.seconds and is_own and not (is_replaced or state.are_workers_gone))


def keep(decision: Decision) -> None:
    """Wait, while the workers stay for the session's next run, until its lease has ended.

    The master keeps the record, so that no other master gets the workers. The Job's deadline would
    end this pod before the lease.
    """
    begin(decision)
    if decision.lease.has_ended:
        scale_down(decision)
        return
    decision.lease = replace(decision.lease, note=LEASE_KEPT)
    decision.write_record(RecordPurpose.KEEP_WORKERS)
    decision.log("the workers stay for the session's next run, as long as its lease is renewed")
    watch_deadline(decision, decision.state.job)


def begin(decision: Decision) -> None:
    """Begin to keep the workers: only the record and the lease need the master now."""
    decision.state = replace(decision.state, activity=Activity.KEEPING_WORKERS)
    timers = decision.state.timers
    decision.clear_timers(
        *(name for name in timers if name not in (TimerKind.RENEW, TimerKind.LEASE))
    )


def watch_deadline(decision: Decision, job: JobReading) -> None:
    """Stop keeping the workers before the deadline of the Job that was just read."""
    seconds_left = job.seconds_left(decision.wall)
    if seconds_left < float("inf"):
        decision.set_timer(TimerKind.KEEP_WORKERS, decision.now + max(0.0, seconds_left))
    else:
        decision.clear_timers(TimerKind.KEEP_WORKERS)


def look_before_end(decision: Decision) -> None:
    """Read the Job again before this terminating pod scales the workers down."""
    decision.add_effects(ReadJob(RESTART_RETRY_SECONDS))


def end_terminated(decision: Decision, job: JobReading) -> None:
    """Keep the workers no longer in a terminating pod: no other process watches the lease.

    Leave the workers to another master if an upgrade has replaced the Job, or if the Job creates
    another master that continues the run.
    """
    is_unfinished = isinstance(decision.state.problem, InterruptedRunError)
    is_unknown = job.kind == JobKind.UNREADABLE or not job.is_own
    if is_unknown or (is_unfinished and job.is_continued(decision.wall)):
        decision.end_master()
    else:
        scale_down(decision)


def scale_down(decision: Decision) -> None:
    """Scale down the workers that have stayed for the session's next run."""
    if decision.state.are_workers_gone:
        return
    if not decision.lease.has_ended:
        decision.lease = replace(decision.lease, note="")
    decision.state = replace(decision.state, are_workers_gone=True)
    decision.add_effects(ScaleDown())
