"""The state of the master's run. It is immutable: each event makes a new state (decision.py)."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass, field
from typing import Mapping

from hvd_pods.rules.events import Moment, Notice
from hvd_pods.rules.job_state import NOT_READ, JobReading
from hvd_pods.rules.reported_progress import ReportedProgress
from hvd_pods.rules.retries import Retries
from hvd_pods.rules.stall_state import NO_RANK, RankStall, Stalls
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.errors import RunError
from hvd_pods.shared.no_answer import NoAnswer
from hvd_pods.shared.pod_problems import Diagnosis
from hvd_pods.shared.record import RecordKey
from hvd_pods.shared.run import Pod, Run, Worker
from hvd_pods.shared.run_events import RunEvent

# Seconds after which a silent worker is lost if all ranks keep their state: a mistake then costs no
# step.
KEPT_STATE_LOST_AFTER_SECONDS = 3.0


class Activity(enum.Enum):
    """The activities of the master, each with the end of its wait, in this order.

    From DECIDING_RETRY the master may go back to WAITING_FOR_WORKERS.
    """

    WAITING_FOR_RECORD = "until it holds the record"
    READING = "until it knows whether the run has ended, and how often it may be tried"
    WAITING_FOR_WORKERS = "until enough workers respond"
    DELIVERING = "until the workers have the user's code"
    TRAINING = "until the launcher ends"
    FINDING_CAUSE = "until it knows why the launcher ended, and how far it came"
    DECIDING_RETRY = "until it knows whether another attempt may follow"
    PAUSING = "until the next attempt begins"
    FINISHING = "until the record has the end of the run and the workers are scaled down"
    KEEPING_WORKERS = "until the session's lease ends, for which the workers of an ended run stay"
    HANDING_OVER = "until the queue sees a worker of the run's next admission"
    OVER = "until the record is released"


@dataclass(frozen=True)
class Assignment:
    """The constant part of the state: the run, and the identity of this master.

    `holder` is this pod's name, `job` and `uid` are the name and the UID of its Job.
    """

    run: Run
    holder: str
    job: str
    uid: str

    @functools.cached_property
    def workers(self) -> dict[str, Worker]:
        """The run's workers by name, in its order."""
        return {worker.name: worker for worker in self.run.workers}


@dataclass(frozen=True)
class RecordLock:
    """This master's lock on the record (rules/record_lock.py)."""

    fence: int = 0
    is_held: bool = False
    # The master that has taken the record from this one; empty while this one has it.
    lost_to: str = ""
    # The last change of another holder's record, and the time of it.
    seen: str = ""
    seen_at: float = 0.0
    is_renewing: bool = False
    # Why the last write of the record failed; empty if it succeeded.
    trouble: str = ""
    # The end of the run could not be written: another master may have the record by now.
    is_end_unconfirmed: bool = False
    # The number of changes by other clients that were handled.
    changes: int = 0
    # The data of the record before this master took it.
    data: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SessionLease:
    """The lease of the session that the run belongs to (rules/session_lease.py)."""

    # Its duration without a renewal; 0: there is no lease.
    seconds: float = 0.0
    # The last renewal, and when this master first saw it.
    renewal: str = ""
    seen_at: float = 0.0
    has_ended: bool = False
    # The text for the record: that the workers stay, or why the run was ended.
    note: str = ""


@dataclass(frozen=True)
class AttemptWorkers:
    """The state of an attempt's workers, and of the pods of missing workers."""

    # The workers that answer now, and why others do not. A worker in both may be lost soon.
    answering: Mapping[str, Pod] = field(default_factory=dict)
    reasons: Mapping[str, NoAnswer] = field(default_factory=dict)
    # Workers that have answered once, by which the deadline is extended.
    arrived: frozenset[str] = frozenset()
    deadline: float = 0.0
    # All workers are silent, and the log says so.
    all_workers_silent: bool = False
    # Pods are being listed: do not request a second list.
    is_listing: bool = False
    diagnoses: Mapping[str, Diagnosis] = field(default_factory=dict)
    # The time since which a worker has a problem that does not resolve by itself.
    since: Mapping[str, float] = field(default_factory=dict)
    # By worker, the UIDs of the first deleted stale pods, and the time of the last deletion.
    replaced: Mapping[str, tuple[frozenset[str], float]] = field(default_factory=dict)
    # Announced reasons, and messages that are logged only once.
    announced: frozenset[str] = frozenset()
    report: str = ""
    reported_at: float = 0.0
    # The workers that should answer at once; None if that is not known, before the first launch.
    expected: frozenset[str] | None = None
    # Seconds to wait for further workers when those that answer would be enough; 0: do not wait.
    patience_seconds: float = 0.0


@dataclass(frozen=True)
class LaunchState:
    """The launch of an attempt: the reports of ranks, of workers and in the launcher's output."""

    workers: tuple[str, ...]
    # Why this master ended the launch while the run may go on.
    problem: RunError | None = None
    # The time until which the ranks of terminating workers may save.
    terminating: Mapping[str, float] = field(default_factory=dict)
    # Ranks (worker, number) that were asked to end, those whose script has ended, and the
    # connections that wait until all have. While ranks are being asked, the set of asked ranks is
    # incomplete.
    asked: frozenset[tuple[str, int]] = frozenset()
    ended: frozenset[tuple[str, int]] = frozenset()
    waiting: tuple[int, ...] = ()
    is_asking: bool = False
    # Ranks whose state is in the memory of their worker.
    kept: frozenset[int] = frozenset()
    # Notices of exceptions that have ended ranks, and of their exit codes and signals.
    exception_notices: tuple[Notice, ...] = ()
    exit_notices: tuple[Notice, ...] = ()
    # Ranks (worker, number) that have ended with 0 without being asked to, the first one first.
    finished: tuple[tuple[str, int], ...] = ()
    # When the first of them ended, and a rank that has not ended, which the log names.
    finished_at: float = 0.0
    unfinished: RankStall | None = None
    stalls: Stalls = field(default_factory=Stalls)
    # The last notice of each rank that uses no CPU.
    idle_ranks: Mapping[int, Notice] = field(default_factory=dict)
    # Workers that were lost, while their pods are being listed to say why.
    lost: tuple[str, ...] = ()
    # Workers that have come are being prepared for the next launch.
    is_growing: bool = False
    # The number of times that the ranks did not keep their state when asked.
    refusals: int = 0
    exit_code: int = 0

    @property
    def all_ended(self) -> frozenset[tuple[str, int]]:
        """Return the ranks (worker, number) whose script has ended, asked or not."""
        return self.ended.union(self.finished)


@dataclass(frozen=True)
class Attempt:
    """One attempt to run the launcher to its end."""

    number: int
    is_prepared: bool = False
    workers: AttemptWorkers = field(default_factory=AttemptWorkers)
    launch: LaunchState | None = None
    # The pods of the launch, which get the code: a worker may be another pod later.
    pods: Mapping[str, Pod] = field(default_factory=dict)
    # Workers without ranks for which EndLeftovers was requested.
    cleared: frozenset[str] = frozenset()
    # How long the launcher ran, in seconds.
    seconds: float = 0.0
    # The log says that the loss is NaN.
    is_nan_logged: bool = False
    problem: RunError | None = None


@dataclass(frozen=True)
class RunState:
    """The complete state on which the next decision depends."""

    assignment: Assignment
    activity: Activity = Activity.WAITING_FOR_RECORD
    is_terminating: bool = False
    # When this pod was asked to end, on the loop's clock.
    terminating_since: float = 0.0
    # The unchanged result of the last checks for successors, and since when: pods that stay, or
    # none.
    successors: str = ""
    successors_since: float = 0.0
    timers: Mapping[TimerKind, float] = field(default_factory=dict)
    record_lock: RecordLock = field(default_factory=RecordLock)
    attempt: Attempt = field(default_factory=lambda: Attempt(0))
    # Attempts that have begun and failed, across all masters of this run.
    attempts: int = 0
    failures: int = 0
    last_failure: str = ""
    retries: Retries = field(default_factory=Retries)
    # This Job has started ranks before: a Service without slices was deleted.
    was_training: bool = False
    # A launch of this Job has started a program in a worker; a launch of another master may have.
    has_reached_worker: bool = False
    # The fence number of the last launch whose ranks may go on without a master.
    orphan_fence: int = 0
    progress: ReportedProgress = field(default_factory=ReportedProgress)
    # Pods whose GPU has failed: no attempt uses them as long as there are enough others.
    broken_pods: frozenset[Pod] = frozenset()
    # The number of workers of the last launch, the time of the last launch that began because of
    # new workers, and the minimum number of seconds until the next such launch.
    workers_before: int = 0
    grown_at: float = float("-inf")
    growth_interval_seconds: float = 0.0
    # The run's entry in the record; empty if this master only reports an earlier end.
    entry: Mapping[str, str] = field(default_factory=dict)
    # The ordinals of the workers that have ranks, if they need not be the first ones.
    used_workers: str = ""
    lease: SessionLease = field(default_factory=SessionLease)
    # The workers were scaled to zero, because the run has ended.
    are_workers_gone: bool = False
    # The last reading of the Job.
    job: JobReading = NOT_READ
    problem: RunError | None = None
    # The stage of the run, None before the first one, and what the metrics count.
    stage: RunEvent | None = None
    launches: int = 0
    stall_count: int = 0

    @property
    def run(self) -> Run:
        """Return the run, which is constant."""
        return self.assignment.run

    @property
    def recorded_workers(self) -> str:
        """Return the record's text about the workers of the launch that another master has left."""
        return str(self.record_lock.data.get(RecordKey.WORKERS, ""))

    @property
    def ranks(self) -> int:
        """Return the number of ranks of the present launch, or of the next one if it is known."""
        launch = self.attempt.launch
        if launch is None:
            return self.run.ranks
        return sum(self.assignment.workers[name].slots for name in launch.workers)

    @property
    def is_state_kept(self) -> bool:
        """Whether each rank keeps its state: no step is then lost if the present launch ends."""
        launch = self.attempt.launch
        return launch is not None and len(launch.kept) >= self.ranks

    @property
    def lost_after_seconds(self) -> float:
        """Return the seconds after which a silent worker is lost; 0: never."""
        is_sooner = self.is_state_kept and self.run.is_lost_after_default
        return (
            min(self.run.lost_after_seconds, KEPT_STATE_LOST_AFTER_SECONDS)
            if is_sooner
            else self.run.lost_after_seconds
        )

    @property
    def attempt_workers(self) -> AttemptWorkers:
        """Return the state of the present attempt's workers."""
        return self.attempt.workers

    def find_stall(self, now: float) -> RankStall | None:
        """Return the rank that the others have waited for longest; None while they continue.

        If no rank computes, it is the rank that has been idle longest.
        """
        launch = self.attempt.launch
        if launch is None or self.activity != Activity.TRAINING:
            return None
        stalls = launch.stalls.list_named(now) + ([launch.unfinished] if launch.unfinished else [])
        over = {rank for _, rank in launch.all_ended} | {NO_RANK}
        stalls = [stall for stall in stalls if stall.rank not in over]
        lasting = [self.shorten(stall) for stall in stalls if stall.seen > self.last_step]
        idle = {
            rank: notice["at"] - notice["seconds"] for rank, notice in launch.idle_ranks.items()
        }
        return min(
            lasting, key=lambda stall: (stall.since, idle.get(stall.rank, 0.0)), default=None
        )

    @property
    def last_step(self) -> float:
        """Return when the last step was reported, by the moments' clock; 0 before the first one."""
        history = self.progress.history
        return history[-1][0] if history else 0.0

    def shorten(self, stall: RankStall) -> RankStall:
        """Return a stall that begins with the last step: the rank had joined for that step."""
        return stall._replace(since=max(stall.since, self.last_step))

    def record_data(self, moment: Moment | None = None) -> dict[str, str]:
        """Return the run's data for each write of the record; with a moment, also the stall's."""
        if not self.entry:
            return {}
        stall = self.find_stall(moment.now) if moment else None
        return {
            **self.entry,
            RecordKey.PROGRESS: self.progress.entry(),
            RecordKey.WORKERS: self.used_workers,
            RecordKey.STALL: stall.entry(moment) if stall and moment else "",
        }
