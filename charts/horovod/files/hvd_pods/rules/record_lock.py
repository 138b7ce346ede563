"""Rules of the record: which master controls the workers, and this run's entry in the record.

The record is a ConfigMap of the release that outlives the run's Job. Two masters of a release can
exist at once: masters of two runs, if the earlier Job is not pruned, or masters of one run, if a
node does not respond and its pod was given up. The record is therefore also a lock. Its holder
writes its name into the record and renews the lock. Another master waits, and takes the lock over
when the holder has released it or has not renewed it. Each takeover increases the fence number:
workers refuse a lower one (worker/fence.py). That protects them even from a master that cannot
reach the API server and does not know yet that it was replaced. The record also keeps a run that
has ended from being repeated, when manifests are applied again (an upgrade, a roll-back, a GitOps
tool).
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Mapping

from hvd_pods.rules import launch_abort, run_end
from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import (
    RESTART_RETRY_SECONDS,
    START_RETRY_SECONDS,
    ReadJob,
    ReadRecord,
    WriteRecord,
)
from hvd_pods.rules.events import (
    AttemptDue,
    EndReached,
    RecordChanged,
    RecordFailed,
    RecordPurpose,
    RecordRead,
    RecordWritten,
    Started,
)
from hvd_pods.rules.reported_progress import ReportedProgress
from hvd_pods.rules.run_state import Activity
from hvd_pods.rules.timers import TimerKind
from hvd_pods.rules.worker_names import parse_used_workers
from hvd_pods.shared.errors import InterruptedRunError, RunError, SupersededError
from hvd_pods.shared.record import FAILED, FINISHED, RecordKey, read_progress
from hvd_pods.shared.run import Run
from hvd_pods.shared.run_events import RunEvent
from hvd_pods.shared.untrusted import one_line, parse_count

# Seconds between two renewals, and without one after which the holder has lost the record. The
# waiting master measures them by its own clock.
RENEW_INTERVAL_SECONDS = 10.0
LOCK_DURATION_SECONDS = 30.0
# Seconds between two reads of a record that another master holds.
RECORD_POLL_INTERVAL_SECONDS = 1.0
# Seconds for which the training waits for the record to be written. It then begins without that.
TAKE_RETRY_SECONDS = 10.0
# More than the number of attempts of a holder that cannot write its fence numbers to the record.
MAX_UNWRITTEN_FENCES = 1000
# Milliseconds by which a fence number of the record may be ahead of this clock. Workers accept
# more, so that they accept the next one, too, when their clocks are behind.
MAX_AHEAD_MILLISECONDS = 43_200_000
# No number in the record is greater: it may be edited by hand.
MAX_RECORD_COUNT = 10**18
# Characters of the names of a master and its Job.
MAX_NAME_CHARACTERS = 140
# The holder, in messages, of the record of a release that was installed after an uninstall.
LATER_RELEASE = "a later release of this name"


def begin(decision: Decision, event: Started) -> None:
    """Take the record, or begin at once if this master has no access to the API."""
    if decision.state.run.has_api_access:
        decision.add_effects(ReadRecord())
    else:
        decision.record_lock = replace(decision.record_lock, fence=new_fence(0, decision.wall))
        on_held(decision, {})


def take_if_free(decision: Decision, event: RecordRead | RecordChanged) -> None:
    """Take the record if it is free; otherwise wait for its holder."""
    data = event.data
    uid = decision.state.assignment.uid
    if decision.state.activity != Activity.WAITING_FOR_RECORD:
        return
    if uid != "" and data.get(RecordKey.SUPERSEDED) == uid:
        job = one_line(str(data.get(RecordKey.HOLDER_JOB)), MAX_NAME_CHARACTERS)
        message = (
            f"{job} has taken the workers over from this Job: delete the Job, which is obsolete"
        )
        decision.add_event(EndReached(SupersededError(message)))
    elif _is_free(decision, data):
        _take(decision, data, {})
    elif _has_expired(decision, data):
        decision.log(f"{describe_holder(data)} has not renewed its lock: taking over")
        _take(decision, data, {RecordKey.SUPERSEDED: data.get(RecordKey.HOLDER_UID, "")})
    else:
        _wait_for_holder(decision, data)


def _has_expired(decision: Decision, data: Mapping[str, str]) -> bool:
    """Return whether the holder has not renewed its lock in time."""
    lock = decision.record_lock
    return renewal(data) == lock.seen and decision.now - lock.seen_at > LOCK_DURATION_SECONDS


def _take(decision: Decision, data: Mapping[str, str], additions: Mapping[str, str]) -> None:
    """Request to take a record with this data, with additions to the lock."""
    fence = new_fence(fence_of(data, decision.wall) + MAX_UNWRITTEN_FENCES, decision.wall)
    decision.record_lock = replace(decision.record_lock, fence=fence, data=dict(data))
    decision.add_effects(
        WriteRecord(
            RecordPurpose.TAKE,
            additions,
            fence,
            is_holder=True,
            changes=decision.record_lock.changes,
            retry_seconds=TAKE_RETRY_SECONDS,
        )
    )


def _wait_for_holder(decision: Decision, data: Mapping[str, str]) -> None:
    """Read the record again later, unless this pod is asked to end."""
    holder = describe_holder(data)
    if not decision.record_lock.seen:
        message = (
            f"waiting until {holder}, which controls the workers, ends or stops renewing its lock"
        )
        decision.log(message)
        decision.report(RunEvent.WAITING, message)
    if renewal(data) != decision.record_lock.seen:
        decision.record_lock = replace(
            decision.record_lock, seen=renewal(data), seen_at=decision.now
        )
    if decision.state.is_terminating:
        decision.add_event(
            EndReached(InterruptedRunError(f"terminated while {holder} controls the workers"))
        )
    else:
        decision.set_timer(TimerKind.READ_RECORD, decision.now + RECORD_POLL_INTERVAL_SECONDS)


def on_held(decision: Decision, data: Mapping[str, str]) -> None:
    """Continue as the holder of a record with this data: report how the run ended, or run."""
    assignment = decision.state.assignment
    run = decision.state.run
    if decision.record_lock.is_held:
        decision.set_timer(TimerKind.RENEW, decision.now + RENEW_INTERVAL_SECONDS)
    if data.get(RecordKey.RUN) == run.id and data.get(RecordKey.SETTINGS_HASH) == run.settings_hash:
        _continue_counts(decision, data)
    if run.has_api_access and data.get(RecordKey.TRAINED) == assignment.uid:
        _note_earlier_training(decision, data)
    if not run.has_api_access:
        decision.add_event(AttemptDue())
    elif has_ended(run, data, assignment.uid):
        run_end.repeat_end(decision, data)
    else:
        decision.state = replace(decision.state, activity=Activity.READING)
        decision.add_effects(ReadJob(START_RETRY_SECONDS))


def _continue_counts(decision: Decision, data: Mapping[str, str]) -> None:
    """Continue the counts and the losses of the earlier masters of this run."""
    attempts = parse_record_number(data.get(RecordKey.ATTEMPTS))
    decision.state = replace(
        decision.state,
        attempts=attempts,
        failures=parse_record_number(data.get(RecordKey.FAILURES)),
        launches=attempts,
        progress=ReportedProgress(losses=read_progress(data).losses),
    )


def _note_earlier_training(decision: Decision, data: Mapping[str, str]) -> None:
    """Note what another master of this Job has started, and may have left."""
    before = parse_used_workers(decision.state.run, decision.state.recorded_workers)
    decision.state = replace(
        decision.state,
        was_training=True,
        # The record does not show whether the command had reached a worker: assume that it had.
        has_reached_worker=True,
        orphan_fence=parse_record_number(data.get(RecordKey.ORPHAN_FENCE)),
        workers_before=len(before),
    )


def on_written(decision: Decision, event: RecordWritten) -> None:
    """Handle a written record, which was taken or renewed, or contains the end of the run."""
    decision.record_lock = replace(decision.record_lock, trouble="")
    if event.purpose == RecordPurpose.TAKE:
        decision.record_lock = replace(decision.record_lock, is_held=True)
        on_held(decision, decision.record_lock.data)
    elif event.purpose == RecordPurpose.RENEW:
        decision.record_lock = replace(decision.record_lock, is_renewing=False)
    elif event.purpose == RecordPurpose.END_RUN and decision.state.activity == Activity.FINISHING:
        run_end.clean_up(decision)


def on_changed(decision: Decision, event: RecordChanged) -> None:
    """Handle a record that another client has changed: a master that has taken it, or a person."""
    decision.record_lock = replace(decision.record_lock, changes=event.changes)
    if decision.state.activity == Activity.OVER:
        return
    if event.is_other:
        # Do not write: the next master would read an entry of this run as its own.
        lose(decision, LATER_RELEASE)
        return
    if event.purpose == RecordPurpose.TAKE:
        take_if_free(decision, event)
        return
    # Another master that has taken the record has a higher number, even if it has released it
    # since.
    if fence_of(event.data, decision.wall) <= decision.record_lock.fence:
        if event.purpose == RecordPurpose.RENEW:
            decision.record_lock = replace(decision.record_lock, is_renewing=False)
            renew(decision)
        else:
            decision.write_record(
                event.purpose, retry_seconds=None if event.purpose == RecordPurpose.END_RUN else 0.0
            )
        return
    lose(decision, describe_holder(event.data))


def check_holder(decision: Decision, data: Mapping[str, str] | None) -> None:
    """Check the holder of the record before counting a failure or scaling workers.

    A worker that serves a newer master refuses this one before this one has seen the record. `data`
    is None where it could not be read.
    """
    lock = decision.record_lock
    if data and lock.is_held and fence_of(data, decision.wall) > lock.fence:
        lose(decision, describe_holder(data))


def lose(decision: Decision, holder: str) -> None:
    """End, and leave the workers to the other master that has taken the record."""
    if decision.record_lock.lost_to or decision.state.activity == Activity.OVER:
        return
    decision.log(f"{holder} controls the workers now")
    decision.record_lock = replace(decision.record_lock, lost_to=holder)
    decision.clear_timers(TimerKind.RENEW)
    attempt = decision.attempt
    activity = decision.state.activity
    if activity == Activity.TRAINING:
        launch_abort.abort(decision, make_superseded_error(holder))
    elif activity == Activity.FINDING_CAUSE or (
        activity == Activity.DECIDING_RETRY and attempt.launch and not attempt.problem
    ):
        # A finished training is a success, whichever master has the workers now.
        return
    elif activity in (Activity.FINISHING, Activity.KEEPING_WORKERS):
        # The result of the training is final; the other master does the rest.
        decision.end_master()
    else:
        decision.add_event(EndReached(make_superseded_error(holder)))


def make_superseded_error(holder: str) -> RunError:
    """Return the error of a master that was replaced by another one."""
    return SupersededError(f"{holder} has taken the workers over from this master")


def on_failed(decision: Decision, event: RecordFailed) -> None:
    """Handle a failed call for the record: continue without it if that is safe."""
    if event.purpose == RecordPurpose.READ:
        if event.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            message = f"cannot read which master controls the workers: {event.message}"
            decision.add_event(EndReached(RunError(message)))
        else:
            _continue_without(decision, event.message)
    elif event.purpose == RecordPurpose.TAKE and event.is_temporary:
        decision.log(f"cannot write the record: {event.message}; trying again during the training")
        on_written(decision, RecordWritten(RecordPurpose.TAKE))
    elif event.purpose == RecordPurpose.TAKE:
        _continue_without(decision, event.message)
    else:
        # The training continues, protected by its fence number; a renewal writes the record later.
        if event.message != decision.record_lock.trouble:
            decision.log(f"cannot write the record of this run: {event.message}")
        lock = replace(decision.record_lock, is_renewing=False, trouble=event.message)
        if event.purpose == RecordPurpose.END_RUN and decision.state.activity == Activity.FINISHING:
            # Only the holder scales its workers. A master that never held the record has no other
            # evidence.
            lock = replace(lock, is_end_unconfirmed=lock.is_held)
            decision.add_effects(ReadJob(RESTART_RETRY_SECONDS))
        decision.record_lock = lock


def renew(decision: Decision) -> None:
    """Renew the lock, unless the previous renewal is still in progress."""
    if not decision.record_lock.is_renewing:
        decision.record_lock = replace(decision.record_lock, is_renewing=True)
        decision.write_record(RecordPurpose.RENEW)
    decision.set_timer(TimerKind.RENEW, decision.now + RENEW_INTERVAL_SECONDS)


def _continue_without(decision: Decision, message: str) -> None:
    """Run without holding the record, which cannot be written for this reason."""
    decision.log(f"cannot hold the record: {message}; the workers accept the newest master")
    decision.record_lock = replace(decision.record_lock, fence=new_fence(0, decision.wall))
    # Use the data that was read, although the record cannot be written.
    on_held(decision, decision.record_lock.data)


def _is_free(decision: Decision, data: Mapping[str, str]) -> bool:
    """Return whether the record has no holder, or an ended pod of this Job holds it.

    The Job controller starts a pod only after the previous one has ended (podReplacementPolicy).
    """
    assignment = decision.state.assignment
    holder = data.get(RecordKey.HOLDER)
    is_of_this_job = assignment.uid != "" and data.get(RecordKey.HOLDER_UID) == assignment.uid
    return not holder or holder == assignment.holder or is_of_this_job


def has_ended(run: Run, data: Mapping[str, str], uid: str) -> bool:
    """Return whether this run has ended, according to the record.

    A run that finished is never repeated. A run that failed is repeated with other settings, and by
    its own Job (`uid`): that Job's last attempt may have expected that no other attempt would
    follow.
    """
    if data.get(RecordKey.RUN) != run.id:
        return False
    if data.get(RecordKey.STATE) == FAILED:
        return (
            data.get(RecordKey.SETTINGS_HASH) == run.settings_hash
            and data.get(RecordKey.UID) != uid
        )
    return data.get(RecordKey.STATE) == FINISHED


def new_fence(last: int, wall: float) -> int:
    """Return a number greater than the last one, even if no record has that: the time."""
    return max(last + 1, int(wall * 1000))


def parse_record_number(text: str | None) -> int:
    """Parse a number of the record, which may have been edited by hand; 0 for any other text."""
    return parse_count(text or "", MAX_RECORD_COUNT) or 0


def fence_of(data: Mapping[str, str], wall: float) -> int:
    """Return a record's fence number; 0 for one that no master has written: workers refuse it."""
    fence = parse_record_number(data.get(RecordKey.FENCE))
    return fence if fence <= wall * 1000 + MAX_AHEAD_MILLISECONDS else 0


def describe_holder(data: Mapping[str, str]) -> str:
    """Name a record's holder in messages."""
    master = data.get(RecordKey.HOLDER) or "a master"
    return one_line(f"{master} of {data.get(RecordKey.HOLDER_JOB)}", MAX_NAME_CHARACTERS)


def renewal(data: Mapping[str, str]) -> str:
    """Return a text that changes with each renewal and each holder."""
    return f"{data.get(RecordKey.HOLDER)} {data.get(RecordKey.FENCE)} {data.get(RecordKey.RENEWED)}"
