"""Rules of a session's lease: the master ends a run whose command is gone.

`hvdchart dev`, `bench` and `launch` remove the releases that they have installed. A
command that is killed, or whose machine sleeps, cannot do that. A running command renews a lease,
an annotation of the Job. If the lease is not renewed in time, this master ends the run: it stops
the training and scales the workers to zero. It measures the time by its own clock, from the last
change that it has seen: the clocks of both machines may differ. While it cannot read the Job, it
does not count the time, because the command may not reach the API server then, either.
"""

from __future__ import annotations

from dataclasses import replace

from hvd_pods.rules import kept_workers, launch_abort
from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import ReadLease
from hvd_pods.rules.events import AttemptOver, LeaseRead
from hvd_pods.rules.job_state import JobKind, JobReading
from hvd_pods.rules.run_state import Activity
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.contract import LEASE, RENEWED
from hvd_pods.shared.errors import LeaseEndedError
from hvd_pods.shared.run_events import RunEvent
from hvd_pods.shared.untrusted import parse_count

# Reads in the time of a lease, and the maximum number of seconds between two reads.
POLLS_PER_LEASE = 20
MAX_LEASE_POLL_INTERVAL_SECONDS = 30.0
MAX_LEASE_SECONDS = 604_800


def seconds_of(job: JobReading) -> int:
    """Return the duration of the Job's lease in seconds; 0 without one."""
    return parse_count(job.annotations.get(LEASE, ""), MAX_LEASE_SECONDS) or 0


def begin(decision: Decision, job: JobReading) -> None:
    """Follow the lease of a Job that was read for the first time, if it has one."""
    state = decision.state
    # The pod of `helm test` has no Job.
    if not state.assignment.job or state.lease.seconds or not job.is_own:
        return
    if job.kind == JobKind.UNREADABLE or seconds_of(job):
        decision.lease = replace(
            decision.lease,
            seconds=float(seconds_of(job)),
            renewal=_renewal(job),
            seen_at=decision.now,
        )
        _look_later(decision)


def read(decision: Decision) -> None:
    """Read the lease."""
    decision.add_effects(ReadLease())


def on_read(decision: Decision, event: LeaseRead) -> None:
    """End the run if its lease has not changed for too long; otherwise look again later."""
    lease = decision.lease
    if lease.has_ended or decision.state.activity == Activity.OVER or decision.record_lock.lost_to:
        return
    if event.job.kind != JobKind.FOUND:
        decision.lease = replace(decision.lease, seen_at=decision.now)
        _look_later(decision)
        return
    seconds = float(seconds_of(event.job))
    if not seconds:
        # An upgrade has removed the lease.
        decision.lease = replace(decision.lease, seconds=0.0, note="")
        if decision.state.activity == Activity.KEEPING_WORKERS:
            decision.end_master()
        return
    renewal = _renewal(event.job)
    is_renewed = renewal != lease.renewal or not lease.seconds
    seen_at = decision.now if is_renewed else lease.seen_at
    decision.lease = replace(lease, seconds=seconds, renewal=renewal, seen_at=seen_at)
    if decision.now - decision.lease.seen_at > seconds:
        _end(decision)
    else:
        _look_later(decision)
        if decision.state.activity == Activity.KEEPING_WORKERS:
            # The Job may not have been read at the end, and an upgrade may have changed the
            # deadline.
            kept_workers.watch_deadline(decision, event.job)


def _end(decision: Decision) -> None:
    """End the run; its workers are then scaled down."""
    seconds = decision.lease.seconds
    text = (
        f"nobody has renewed the lease of its session for {seconds:.0f} s "
        "(`session.leaseSeconds`): the command that started it has ended, or its machine sleeps"
    )
    decision.lease = replace(decision.lease, has_ended=True, note=text)
    decision.log(f"the run ends: {text}")
    decision.report(RunEvent.LEASE_ENDED, text)
    activity = decision.state.activity
    problem = LeaseEndedError(text)
    if activity == Activity.TRAINING:
        launch_abort.abort(decision, problem)
    elif activity in (Activity.WAITING_FOR_WORKERS, Activity.DELIVERING, Activity.PAUSING):
        decision.clear_timers(TimerKind.PAUSE)
        decision.add_event(AttemptOver(problem))
    elif activity == Activity.KEEPING_WORKERS:
        kept_workers.scale_down(decision)
    # Otherwise the run is about to end, and checks the lease then.


def _look_later(decision: Decision) -> None:
    every = decision.lease.seconds / POLLS_PER_LEASE or MAX_LEASE_POLL_INTERVAL_SECONDS
    decision.set_timer(TimerKind.LEASE, decision.now + min(every, MAX_LEASE_POLL_INTERVAL_SECONDS))


def _renewal(job: JobReading) -> str:
    """Return a text that changes with each renewal."""
    return str(job.annotations.get(RENEWED, ""))
