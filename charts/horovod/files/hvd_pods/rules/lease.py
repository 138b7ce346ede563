"""Rules of a session's lease: what a command has forgotten is ended.

`hvdchart dev`, `debug`, `bench` and `launch` remove what they have installed. A command that is
killed, or whose machine sleeps, cannot. So it renews a lease, an annotation of the Job, as long as
it runs, and this master ends a run whose lease was not renewed in its time: it stops the training
and scales the workers to zero. It counts by its own clock, from when it has seen the last change:
the clocks of both machines may differ. While it cannot read the Job, it does not count, because
the command may not reach the API server then, either.
"""

from __future__ import annotations

from hvd_pods.cluster.objects import Object
from hvd_pods.common.contract import LEASE, RENEWED
from hvd_pods.common.errors import LeaseEndedError
from hvd_pods.common.hostile import parse_count
from hvd_pods.common.run_events import RunEvent
from hvd_pods.rules import aborting, ending
from hvd_pods.rules.effects import ReadLease
from hvd_pods.rules.events import AttemptOver, LeaseRead
from hvd_pods.rules.state import Activity, Decision
from hvd_pods.rules.timers import TimerKind

# Looks in the time of a lease, and the seconds between two of them at most.
LOOKS = 20
LOOK_EVERY = 30.0
LONGEST = 604_800


def seconds_of(job: Object) -> int:
    """How long the Job's lease lasts; 0 without one."""
    return parse_count(job["metadata"].get("annotations", {}).get(LEASE, ""), LONGEST) or 0


def begin(decision: Decision, job: Object | None) -> None:
    """Follow the lease of a Job that was read for the first time, if it has one."""
    state = decision.state
    # The pod of `helm test` has no Job.
    if not state.assignment.job or state.lease.seconds or job is None:
        return
    if job == ending.UNREADABLE or seconds_of(job):
        decision.set_lease(
            seconds=float(seconds_of(job)), renewal=_renewal(job), seen_at=decision.now
        )
        _look_later(decision)


def look(decision: Decision) -> None:
    """Read the lease."""
    decision.do(ReadLease())


def on_read(decision: Decision, event: LeaseRead) -> None:
    """End the run if its lease has not changed for too long; otherwise look again later."""
    lease = decision.state.lease
    if lease.has_ended or decision.state.activity == Activity.OVER or decision.state.hold.lost_to:
        return
    if event.job is None:
        decision.set_lease(seen_at=decision.now)
        _look_later(decision)
        return
    seconds = float(seconds_of(event.job))
    if not seconds:
        # An upgrade has made an ordinary run of it.
        decision.set_lease(seconds=0.0, note="")
        if decision.state.activity == Activity.STAYING:
            ending.give_back(decision)
        return
    renewal = _renewal(event.job)
    if renewal != lease.renewal or not lease.seconds:
        decision.set_lease(renewal=renewal, seen_at=decision.now)
    decision.set_lease(seconds=seconds)
    if decision.now - decision.state.lease.seen_at > seconds:
        _end(decision)
    else:
        _look_later(decision)
        if decision.state.activity == Activity.STAYING:
            # It may not have been read at the end, and an upgrade may have changed it.
            ending.watch_deadline(decision, event.job)


def _end(decision: Decision) -> None:
    """End the run, and let its workers go."""
    seconds = decision.state.lease.seconds
    text = (
        f"nobody has renewed the lease of its session for {seconds:.0f} s "
        "(`session.leaseSeconds`): the command that started it has ended, or its machine sleeps"
    )
    decision.set_lease(has_ended=True, note=text)
    decision.log(f"the run ends: {text}")
    decision.report(RunEvent.LEASE_ENDED, text)
    activity = decision.state.activity
    problem = LeaseEndedError(text)
    if activity == Activity.TRAINING:
        aborting.abort(decision, problem)
    elif activity in (Activity.GATHERING, Activity.DELIVERING, Activity.PAUSING):
        decision.clear_timers(TimerKind.PAUSE)
        decision.then(AttemptOver(problem))
    elif activity == Activity.STAYING:
        ending.end_stay(decision)
    # Otherwise the run is about to end, and looks at the lease then.


def _look_later(decision: Decision) -> None:
    every = decision.state.lease.seconds / LOOKS or LOOK_EVERY
    decision.set_timer(TimerKind.LEASE, decision.now + min(every, LOOK_EVERY))


def _renewal(job: Object) -> str:
    """What changes with each renewal."""
    return str(job["metadata"].get("annotations", {}).get(RENEWED, ""))
