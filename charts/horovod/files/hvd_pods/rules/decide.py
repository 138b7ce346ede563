"""What follows from each event of a run: the handler of the event, in the rules beside this module.

`decide` is pure: it reads no clock, does not block, and only returns a new state. docs/inside.md
shows how a run goes through it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Mapping, Tuple, TypeVar

from hvd_pods.rules import (
    attempt_workers,
    handover,
    job_state,
    kept_workers,
    launch,
    missing_workers,
    newcomers,
    rank_notices,
    record_lock,
    run_end,
    session_lease,
    stalls,
)
from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import (
    RESTART_RETRY_SECONDS,
    Effect,
    EndLauncher,
    Exit,
    Interrupt,
    Prepare,
    ReadJob,
    ReadRecord,
    ReleaseRanks,
    StopProgress,
    StopWatching,
    WatchWorkers,
)
from hvd_pods.rules.events import (
    AttemptDue,
    AttemptEvent,
    AttemptOver,
    CauseFound,
    Delivered,
    EndReached,
    Event,
    FinishedCounted,
    JobRead,
    LauncherEnded,
    LauncherNotStarted,
    LeaseRead,
    Moment,
    NewcomersReady,
    NoticeTaken,
    PodsListed,
    Prepared,
    ProgressReported,
    ProgressStopped,
    RankMissing,
    RanksAskedToEnd,
    RanksChecked,
    RecordChanged,
    RecordFailed,
    RecordPurpose,
    RecordRead,
    RecordReleased,
    RecordWritten,
    StacksShown,
    Started,
    Terminated,
    Timer,
    WorkerAnswers,
    WorkerGone,
    WorkerProblem,
    WorkerReached,
    WorkersScaled,
)
from hvd_pods.rules.run_state import Activity, Attempt, RunState
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.errors import (
    InterruptedRunError,
    LostWorkerError,
    NotANumberError,
    ResizedError,
    RunError,
)
from hvd_pods.shared.record import RUNNING
from hvd_pods.shared.run_events import RunEvent

EventType = TypeVar("EventType", bound=Event)
Handler = Callable[[Decision, Any], None]
_Entry = Tuple[type, Handler]


def decide(state: RunState, event: Event, moment: Moment) -> tuple[RunState, tuple[Effect, ...]]:
    """Return the state after an event, and the effects in their order.

    An event of an ended attempt does not change the state; a rank that waits for a response gets
    it. Raises KeyError for an event that has no handler.
    """
    decision = Decision(state, moment)
    decision.add_event(event)
    while decision.events:
        event = decision.events.pop(0)
        # The event is late if its attempt has ended.
        is_late = isinstance(event, AttemptEvent) and event.attempt != decision.attempt.number
        if not is_late:
            HANDLERS[type(event)](decision, event)
        elif isinstance(event, NoticeTaken) and event.connection:
            decision.add_effects(ReleaseRanks([event.connection]))
    return decision.state, tuple(decision.effects)


def on_attempt_begins(decision: Decision, event: AttemptDue) -> None:
    """Begin an attempt: probe the workers, and prepare the launcher meanwhile."""
    run = decision.state.run
    before = decision.attempt.launch
    if decision.state.is_terminating:
        _read_job(decision)
        return
    if before and before.lost:
        missing_workers.explain_loss(decision, PodsListed(0, problem="no answer yet"), before.lost)
    if before and before.waiting:
        decision.add_effects(ReleaseRanks(before.waiting))
    state = decision.state
    number = state.attempts + 1
    fence = state.record_lock.fence + 1
    decision.state = replace(
        state,
        attempts=number,
        attempt=Attempt(number, workers=attempt_workers.expect(state)),
        progress=state.progress.forget(),
        record_lock=replace(state.record_lock, fence=fence),
        activity=Activity.WAITING_FOR_WORKERS,
    )
    decision.set_entry(RUNNING, decision.state.last_failure)
    decision.write_record(RecordPurpose.BEGIN_ATTEMPT)
    decision.add_effects(
        WatchWorkers(number), Prepare(number, fence, scales_workers=run.has_api_access)
    )
    message = f"attempt {number} waits for workers of {run.ranks} ranks"
    decision.report(RunEvent.STARTED, message)
    decision.log(f"{message}, at most {run.workers_timeout_seconds:.0f} s")
    attempt_workers.begin(decision)


def on_prepared(decision: Decision, event: Prepared) -> None:
    """Begin if the workers are ready for the prepared launcher; on a problem, fail the attempt."""
    if decision.state.activity != Activity.WAITING_FOR_WORKERS:
        return
    if event.problem:
        decision.add_event(AttemptOver(event.problem))
        return
    decision.attempt = replace(decision.attempt, is_prepared=True)
    attempt_workers.extend_deadline(decision)
    attempt_workers.start_if_possible(decision)


def on_worker_answers(decision: Decision, event: WorkerAnswers) -> None:
    """Handle a worker that answers, for the first time or again."""
    attempt_workers.on_answer(decision, event)
    _follow_workers(decision)


def on_worker_problem(decision: Decision, event: WorkerProblem) -> None:
    """Handle a worker that does not answer."""
    attempt_workers.on_problem(decision, event)
    _follow_workers(decision)


def on_worker_gone(decision: Decision, event: WorkerGone) -> None:
    """Handle a worker that has another pod, or none."""
    attempt_workers.on_gone(decision, event)
    _follow_workers(decision)


def _follow_workers(decision: Decision) -> None:
    """Update the running launch after workers have come or gone."""
    launch.on_workers(decision)
    newcomers.await_newcomers(decision)


def on_delivered(decision: Decision, event: Delivered) -> None:
    """Begin the launch whose workers have the user's code."""
    if decision.state.activity == Activity.DELIVERING:
        launch.begin(decision, event)
        newcomers.note_size(decision)
        newcomers.await_newcomers(decision)


def on_attempt_ends(decision: Decision, event: AttemptOver) -> None:
    """End the attempt: take the last step that was reported, then read the Job."""
    decision.clear_timers(*(kind for kind in TimerKind if kind.is_of_attempt))
    attempt = replace(decision.attempt, problem=event.problem)
    decision.state = replace(decision.state, activity=Activity.FINDING_CAUSE, attempt=attempt)
    decision.add_effects(StopWatching())
    # The next attempt is compared with the last step. A lost worker cannot report it, and a new
    # worker is waiting.
    is_known = not isinstance(event.problem, (LostWorkerError, ResizedError))
    decision.add_effects(StopProgress(attempt.number, wait_for_last_step=is_known))


def on_progress_stopped(decision: Decision, event: ProgressStopped) -> None:
    """Read the Job to decide about another attempt: all reports of this one are known."""
    state = decision.state
    if state.activity != Activity.FINDING_CAUSE:
        return
    if state.attempt.problem is None and state.run.fail_on_nan and state.progress.is_nan:
        decision.attempt = replace(decision.attempt, problem=NotANumberError())
    launch.warn_of_nan(decision)
    problem = decision.attempt.problem
    lost_to = decision.record_lock.lost_to
    if lost_to and problem:
        decision.add_event(EndReached(record_lock.make_superseded_error(lost_to)))
    elif lost_to:
        decide_retry(decision)
    else:
        _read_job(decision)


def _read_job(decision: Decision) -> None:
    """Read the Job before the end of an attempt is decided; without the API, decide at once."""
    decision.state = replace(decision.state, activity=Activity.DECIDING_RETRY)
    state = decision.state
    if not state.run.has_api_access:
        decide_retry(decision)
        return
    # Only the end depends on the Job: another attempt does not wait long for it.
    is_failure = state.attempt.problem is not None and not state.is_terminating
    decision.add_effects(ReadJob(RESTART_RETRY_SECONDS if is_failure else None))


def on_pods(decision: Decision, event: PodsListed) -> None:
    """Handle a list of pods, for missing workers or for the end in a queue."""
    if decision.state.activity == Activity.HANDING_OVER:
        handover.on_successors(decision, event)
    else:
        attempt_workers.on_pods(decision, event)


def on_job(decision: Decision, event: JobRead) -> None:
    """Handle the state of the Job, for the present activity or for ranks that may continue."""
    if event.is_for_orphans:
        if TimerKind.LEAVE in decision.state.timers:
            launch.interrupt(decision, event.job)
        return
    decision.state = replace(decision.state, job=event.job)
    record_lock.check_holder(decision, event.record)
    if decision.events or decision.state.activity == Activity.OVER:
        # Another master has the record: this master decides nothing more.
        return
    session_lease.begin(decision, event.job)
    state = decision.state
    if state.activity == Activity.DECIDING_RETRY:
        decide_retry(decision)
    elif (
        state.activity == Activity.FINISHING
        and state.record_lock.is_end_unconfirmed
        and event.record is None
    ):
        run_end.leave_workers(decision)
    elif state.activity == Activity.FINISHING:
        run_end.clean_up(decision)
    elif state.activity == Activity.READING:
        decision.state = replace(state, retries=state.retries.note_job(event.job))
        decision.add_event(AttemptDue())
    elif state.activity == Activity.KEEPING_WORKERS:
        kept_workers.end_terminated(decision, event.job)


def decide_retry(decision: Decision) -> None:
    """Decide whether another attempt follows, now that the Job is known."""
    state = decision.state
    run = state.run
    problem = decision.attempt.problem
    job = state.job
    has_failed = problem is not None or state.attempt.launch is None
    if state.is_terminating and has_failed:
        problem = job_state.interruption(job, decision.wall)
        run_end.announce(decision, problem)
        run_end.finish(decision, problem)
    elif problem is None:
        decision.log("training finished")
        decision.report(RunEvent.FINISHED, "the training ended with exit code 0")
        run_end.finish(decision, None)
    else:
        _retry(
            decision,
            problem,
            is_over=run.has_api_access and (not job.is_own or job.is_withdrawn),
        )


def _retry(decision: Decision, problem: RunError, is_over: bool) -> None:
    """Make another attempt, at once or after a pause, or finish. `is_over`: do not retry."""
    state = decision.state
    retries = state.retries.note_job(state.job)
    step_reached = state.progress.step
    seconds = state.attempt.seconds
    is_elastic = state.run.is_elastic
    verdict = retries.judge(problem, seconds, state.failures, step_reached, is_elastic=is_elastic)
    is_end = is_over or verdict.delay_seconds is None or state.lease.has_ended
    if not is_end and verdict.is_change:
        decision.log(str(problem))
        last_failure = state.last_failure
    else:
        run_end.announce(decision, problem)
        last_failure = str(problem)
    decision.state = replace(
        decision.state,
        last_failure=last_failure,
        retries=verdict.retries,
        failures=verdict.failures,
    )
    if is_end or verdict.delay_seconds is None:
        if verdict.delay_seconds is None and verdict.explanation:
            decision.log(verdict.explanation)
        run_end.finish(decision, problem)
        return
    decision.log(verdict.explanation)
    if verdict.delay_seconds:
        decision.state = replace(decision.state, activity=Activity.PAUSING)
        decision.set_timer(TimerKind.PAUSE, decision.now + verdict.delay_seconds)
    else:
        decision.add_event(AttemptDue())


def _end_pause(decision: Decision) -> None:
    """Begin the next attempt, if the run has not ended meanwhile."""
    if decision.state.activity == Activity.PAUSING:
        decision.add_event(AttemptDue())


def on_end_reached(decision: Decision, event: EndReached) -> None:
    """End this master, and leave record and workers as they are."""
    if decision.state.activity == Activity.OVER:
        return
    run_end.announce(decision, event.problem)
    decision.state = replace(decision.state, problem=event.problem)
    decision.add_effects(StopWatching())
    run_end.end_or_keep_workers(decision)


def on_workers_scaled(decision: Decision, event: WorkersScaled) -> None:
    """Continue after the workers are scaled down, or the log names the failures."""
    if decision.state.activity == Activity.FINISHING:
        run_end.end_or_keep_workers(decision)
    elif decision.state.activity == Activity.KEEPING_WORKERS:
        decision.end_master()


def on_record_released(decision: Decision, event: RecordReleased) -> None:
    """End this master, unless a queue would then consider the run finished."""
    if handover.is_preempted(decision):
        handover.hand_over(decision)
    else:
        decision.add_effects(Exit(decision.state.problem))


def on_timer(decision: Decision, event: Timer) -> None:
    """Handle a timer, unless it was cleared meanwhile."""
    if event.kind not in decision.state.timers:
        return
    decision.clear_timers(event.kind)
    TIMERS[event.kind](decision)


def on_terminated(decision: Decision, event: Terminated) -> None:
    """Handle the request to end this pod: ranks may save, and nothing new begins."""
    if decision.state.is_terminating:
        return
    decision.state = replace(decision.state, is_terminating=True, terminating_since=decision.now)
    decision.add_effects(Interrupt())
    if decision.state.activity == Activity.TRAINING:
        launch.terminate(decision)
        return
    decision.log("this pod is terminating")
    if decision.state.activity == Activity.WAITING_FOR_WORKERS:
        decision.add_event(AttemptOver(InterruptedRunError("terminated while waiting for workers")))
    elif (
        decision.state.activity == Activity.WAITING_FOR_RECORD
        and TimerKind.READ_RECORD in decision.state.timers
    ):
        # The next read of the record ends this master.
        decision.clear_timers(TimerKind.READ_RECORD)
        decision.add_effects(ReadRecord())
    elif decision.state.activity == Activity.PAUSING:
        decision.clear_timers(TimerKind.PAUSE)
        _read_job(decision)
    elif (
        decision.state.activity == Activity.KEEPING_WORKERS and not decision.state.are_workers_gone
    ):
        kept_workers.look_before_end(decision)


TIMERS: Mapping[TimerKind, Callable[[Decision], None]] = {
    TimerKind.READ_RECORD: lambda decision: decision.add_effects(ReadRecord()),
    TimerKind.RENEW: record_lock.renew,
    TimerKind.WORKERS: attempt_workers.time_out,
    TimerKind.SHRINK: attempt_workers.lose_patience,
    TimerKind.GROW: newcomers.prepare,
    TimerKind.PODS: attempt_workers.list_pods,
    TimerKind.RESUME: attempt_workers.start_if_possible,
    TimerKind.LOSS: launch.on_workers,
    TimerKind.STALLS: stalls.report_stalls,
    TimerKind.UNFINISHED: stalls.report_unfinished,
    TimerKind.LEAVE: launch.interrupt,
    TimerKind.KILL: lambda decision: decision.add_effects(EndLauncher(kills=True)),
    TimerKind.END: lambda decision: decision.add_effects(EndLauncher()),
    TimerKind.PAUSE: _end_pause,
    TimerKind.LEASE: session_lease.read,
    TimerKind.KEEP_WORKERS: kept_workers.scale_down,
    TimerKind.SUCCESSORS: handover.look_for_successors,
}


def _on(kind: type[EventType], handler: Callable[[Decision, EventType], None]) -> _Entry:
    """Return an entry of the table: the handler of a class of events."""
    return kind, handler


HANDLERS: Mapping[type, Handler] = dict(
    [
        _on(Started, record_lock.begin),
        _on(RecordRead, record_lock.take_if_free),
        _on(RecordWritten, record_lock.on_written),
        _on(RecordChanged, record_lock.on_changed),
        _on(RecordFailed, record_lock.on_failed),
        _on(RecordReleased, on_record_released),
        _on(JobRead, on_job),
        _on(LeaseRead, session_lease.on_read),
        _on(AttemptDue, on_attempt_begins),
        _on(Prepared, on_prepared),
        _on(WorkerAnswers, on_worker_answers),
        _on(WorkerProblem, on_worker_problem),
        _on(WorkerGone, on_worker_gone),
        _on(PodsListed, on_pods),
        _on(FinishedCounted, attempt_workers.on_finished_counted),
        _on(Delivered, on_delivered),
        _on(NewcomersReady, newcomers.on_ready),
        _on(NoticeTaken, rank_notices.on_notice),
        _on(RankMissing, stalls.on_missing_rank),
        _on(StacksShown, stalls.end_stalled),
        _on(RanksChecked, launch.on_ranks_checked),
        _on(RanksAskedToEnd, launch.on_ranks_asked_to_end),
        _on(ProgressReported, launch.on_progress),
        _on(WorkerReached, launch.on_worker_reached),
        _on(LauncherNotStarted, launch.on_not_started),
        _on(LauncherEnded, launch.on_launcher_ended),
        _on(CauseFound, launch.on_cause),
        _on(AttemptOver, on_attempt_ends),
        _on(ProgressStopped, on_progress_stopped),
        _on(WorkersScaled, on_workers_scaled),
        _on(EndReached, on_end_reached),
        _on(Terminated, on_terminated),
        _on(Timer, on_timer),
    ]
)
