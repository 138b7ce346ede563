"""One decision in progress. It is mutable: the rules of an event change it one after the other.

A rule reads through the decision what it or another rule may have changed. What it has read from
`decision.state` before is an earlier state.
"""

from __future__ import annotations

from dataclasses import replace

from hvd_pods.rules.effects import CreateJobEvent, Effect, Log, ReleaseRecord, WriteRecord
from hvd_pods.rules.events import Event, Moment, RecordPurpose, RecordReleased
from hvd_pods.rules.run_state import (
    Activity,
    Attempt,
    AttemptWorkers,
    LaunchState,
    RecordLock,
    RunState,
    SessionLease,
)
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.objects import format_time
from hvd_pods.shared.record import RecordKey
from hvd_pods.shared.run_events import RunEvent


class Decision:
    """One decision: the state, which it changes, and the effects and events that it collects."""

    def __init__(self, state: RunState, moment: Moment) -> None:
        self.state = state
        self.moment = moment
        self.now, self.wall = moment
        self.effects: list[Effect] = []
        self.events: list[Event] = []

    @property
    def record_lock(self) -> RecordLock:
        """This master's lock on the record."""
        return self.state.record_lock

    @record_lock.setter
    def record_lock(self, lock: RecordLock) -> None:
        self.state = replace(self.state, record_lock=lock)

    @property
    def attempt(self) -> Attempt:
        """The present attempt."""
        return self.state.attempt

    @attempt.setter
    def attempt(self, attempt: Attempt) -> None:
        self.state = replace(self.state, attempt=attempt)

    @property
    def attempt_workers(self) -> AttemptWorkers:
        """The state of the present attempt's workers."""
        return self.attempt.workers

    @attempt_workers.setter
    def attempt_workers(self, workers: AttemptWorkers) -> None:
        self.attempt = replace(self.attempt, workers=workers)

    @property
    def launch(self) -> LaunchState:
        """The present launch. Raises RuntimeError where none has begun."""
        if self.attempt.launch is None:
            raise RuntimeError(f"attempt {self.attempt.number} has no launch")
        return self.attempt.launch

    @launch.setter
    def launch(self, launch: LaunchState) -> None:
        self.attempt = replace(self.attempt, launch=launch)

    @property
    def lease(self) -> SessionLease:
        """The lease of the session."""
        return self.state.lease

    @lease.setter
    def lease(self, lease: SessionLease) -> None:
        # The run's entry has the note of the lease.
        self.state = replace(self.state, lease=lease)
        if self.state.entry:
            entry = {**self.state.entry, RecordKey.LEASE: lease.note}
            self.state = replace(self.state, entry=entry)

    def add_effects(self, *more: Effect) -> None:
        """Request these effects, after those of before."""
        self.effects.extend(more)

    def report(self, event: RunEvent, message: str) -> None:
        """Request an event about the Job; an event that is a stage sets the run's stage."""
        if event.sets_stage:
            self.state = replace(self.state, stage=event)
        self.add_effects(CreateJobEvent(event, message))

    def log(self, message: str) -> None:
        """Request a line in the log."""
        self.add_effects(Log(message))

    def add_event(self, event: Event) -> None:
        """Queue an event that this decision has caused; it is handled at once."""
        self.events.append(event)

    def set_timer(self, kind: TimerKind, at: float) -> None:
        """Set the timer of this kind to a time; this replaces an earlier time."""
        self.state = replace(self.state, timers={**self.state.timers, kind: at})

    def clear_timers(self, *kinds: TimerKind) -> None:
        """Cancel the timers of these kinds."""
        left = {kind: at for kind, at in self.state.timers.items() if kind not in kinds}
        self.state = replace(self.state, timers=left)

    def set_entry(self, state: str, reason: str = "") -> None:
        """Set the run's entry for the next write of the record."""
        entry = {
            RecordKey.RUN: self.state.run.id,
            RecordKey.SETTINGS_HASH: self.state.run.settings_hash,
            RecordKey.JOB: self.state.assignment.job,
            RecordKey.UID: self.state.assignment.uid,
            RecordKey.ATTEMPTS: str(self.state.attempts),
            RecordKey.FAILURES: str(self.state.failures),
            RecordKey.STATE: state,
            RecordKey.REASON: reason,
            RecordKey.LEASE: self.state.lease.note,
            RecordKey.TIME: format_time(self.wall),
        }
        if self.state.was_training:
            entry[RecordKey.TRAINED] = self.state.assignment.uid
            entry[RecordKey.ORPHAN_FENCE] = str(self.state.orphan_fence)
        self.state = replace(self.state, entry=entry)

    def write_record(self, purpose: RecordPurpose, retry_seconds: float | None = 0.0) -> None:
        """Request a write of the record, unless another master has taken it."""
        lock = self.state.record_lock
        if self.state.run.has_api_access and not lock.lost_to:
            news = self.state.record_data(self.moment)
            self.add_effects(
                WriteRecord(purpose, news, lock.fence, lock.is_held, lock.changes, retry_seconds)
            )

    def end_master(self) -> None:
        """End this master as soon as the record is released."""
        self.state = replace(self.state, activity=Activity.OVER, timers={})
        self._release_record()

    def _release_record(self) -> None:
        """Request the release of the record, if this master holds it."""
        lock = self.state.record_lock
        if lock.is_held and not lock.lost_to:
            self.add_effects(ReleaseRecord(self.state.record_data(), lock.fence))
        else:
            self.add_event(RecordReleased())
