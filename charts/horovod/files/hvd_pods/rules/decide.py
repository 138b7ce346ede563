"""All rules of a run's life: what follows from an event.

`decide` is pure: it reads no clock, waits for nothing and changes nothing but the state that it
returns. docs/inside.md shows how a run goes through it.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

from hvd_pods.cluster.shapes import AGAIN_RETRY_SECONDS, Object
from hvd_pods.common.errors import (
    InterruptedRunError,
    LostWorkerError,
    NotANumberError,
    ResizedError,
    RunError,
)
from hvd_pods.common.record import RUNNING
from hvd_pods.common.run_events import RunEvent
from hvd_pods.rules import diagnosis, ending, gathering, growing, holding, lease, stalls, training
from hvd_pods.rules import messages as m
from hvd_pods.rules.state import Activity, Attempt, State, Step
from hvd_pods.rules.timers import TimerKind

Handler = Callable[[Step, Any], None]


def decide(state: State, event: m.Event, moment: m.Moment) -> tuple[State, tuple[m.Effect, ...]]:
    """Return the state after an event, and what is to be done, in this order.

    An event of an attempt that is over changes nothing; a rank that waits for an answer gets it.
    Raises KeyError for an event that has no handler.
    """
    step = Step(state, moment)
    step.then(event)
    while step.following:
        event = step.following.pop(0)
        # It comes too late when its attempt has ended.
        is_late = isinstance(event, m.AttemptEvent) and event.attempt != step.state.attempt.number
        if not is_late:
            HANDLERS[type(event)](step, event)
        elif isinstance(event, m.NoticeTaken) and event.connection:
            step.do(m.ReleaseRanks([event.connection]))
    return step.state, tuple(step.effects)


def on_attempt_begins(step: Step, event: m.AttemptBegins) -> None:
    """Begin an attempt: ask the workers, and prepare the launcher meanwhile."""
    state = step.state
    run = step.state.run
    before = step.state.attempt.launch
    if state.is_stopped:
        _read_job(step)
        return
    if before and before.lost:
        diagnosis.explain_loss(step, m.PodsListed(0, problem="no answer yet"), before.lost)
    if before and before.waiting:
        step.do(m.ReleaseRanks(before.waiting))
    number = state.attempts + 1
    fence = state.hold.fence + 1
    step.set_hold(fence=fence)
    progress = state.progress.forget()
    attempt = Attempt(number, gathered=gathering.expect(state))
    step.set(attempts=number, attempt=attempt, progress=progress, activity=Activity.GATHERING)
    step.set_entry(RUNNING, state.last_failure)
    step.write_record("begin")
    step.do(m.WatchWorkers(number), m.Prepare(number, fence, fits=run.api))
    what = f"attempt {number} waits for workers of {run.ranks} ranks"
    step.report(RunEvent.STARTED, what)
    step.log(f"{what}, at most {run.workers_timeout:.0f} s")
    gathering.begin(step)


def on_prepared(step: Step, event: m.Prepared) -> None:
    """The launcher is prepared, which the workers may have waited for, or the attempt fails."""
    if step.state.activity != Activity.GATHERING:
        return
    if event.problem:
        step.then(m.AttemptEnds(event.problem))
        return
    step.set_attempt(is_prepared=True)
    gathering.extend_deadline(step)
    gathering.start_if_possible(step)


def on_worker_answers(step: Step, event: m.WorkerAnswers) -> None:
    """A worker answers, for the first time or again."""
    gathering.on_answer(step, event)
    _follow_workers(step)


def on_worker_problem(step: Step, event: m.WorkerProblem) -> None:
    """A worker does not answer."""
    gathering.on_problem(step, event)
    _follow_workers(step)


def on_worker_gone(step: Step, event: m.WorkerGone) -> None:
    """A worker has another pod, or none."""
    gathering.on_gone(step, event)
    _follow_workers(step)


def _follow_workers(step: Step) -> None:
    """Workers have come or gone, which may change a launch that runs."""
    training.on_workers(step)
    growing.look(step)


def on_delivered(step: Step, event: m.Delivered) -> None:
    """The workers of a launch have the user's code."""
    if step.state.activity == Activity.DELIVERING:
        training.begin(step, event)
        growing.note_size(step)
        growing.look(step)


def on_attempt_ends(step: Step, event: m.AttemptEnds) -> None:
    """The attempt is over: take the last step that was reported, then read the Job."""
    attempt = step.state.attempt
    step.clear_timers(*(kind for kind in TimerKind if kind.is_of_attempt))
    step.set_attempt(problem=event.problem)
    step.set(activity=Activity.JUDGING)
    step.do(m.StopWatching())
    # The next attempt is compared with the last step. A worker that is lost cannot report it, and
    # one that has come is waiting.
    is_known = not isinstance(event.problem, (LostWorkerError, ResizedError))
    step.do(m.StopProgress(attempt.number, wait_for_last_step=is_known))


def on_progress_stopped(step: Step, event: m.ProgressStopped) -> None:
    """Everything that an attempt has reported is known: read what the Job says of another one."""
    state = step.state
    if state.activity != Activity.JUDGING:
        return
    if state.attempt.problem is None and state.run.fail_on_nan and state.progress.is_nan:
        step.set_attempt(problem=NotANumberError())
    training.warn_of_nan(step)
    problem = step.state.attempt.problem
    lost_to = state.hold.lost_to
    if lost_to and problem:
        step.then(m.EndReached(holding.superseded(lost_to)))
    elif lost_to:
        conclude(step, state.job)
    else:
        _read_job(step)


def _read_job(step: Step) -> None:
    """Read the Job before the end of an attempt is decided; without the API, decide at once."""
    state = step.state
    step.set(activity=Activity.CONCLUDING)
    if not state.run.api:
        conclude(step, None)
        return
    # Only the end depends on what the Job says: another attempt does not wait long for it.
    is_failure = state.attempt.problem is not None and not state.is_stopped
    step.do(m.ReadJob(AGAIN_RETRY_SECONDS if is_failure else None))


def on_pods(step: Step, event: m.PodsListed) -> None:
    """The pods were listed, for missing workers or for the end in a queue."""
    if step.state.activity == Activity.HANDING_OVER:
        ending.on_successors(step, event)
    else:
        gathering.on_pods(step, event)


def on_job(step: Step, event: m.JobRead) -> None:
    """The Job was read, for what the master waits for or for ranks that may go on."""
    state = step.state
    if event.leaves:
        if TimerKind.LEAVE in state.timers:
            training.interrupt(step, event.job)
        return
    step.set(job=event.job)
    holding.look_again(step, event.record)
    if step.following or step.state.activity == Activity.OVER:
        # Another master has the record: nothing of this is decided here.
        return
    lease.begin(step, event.job)
    if state.activity == Activity.CONCLUDING:
        conclude(step, event.job)
    elif state.activity == Activity.FINISHING and state.hold.is_in_doubt and event.record is None:
        ending.leave_workers(step)
    elif state.activity == Activity.FINISHING:
        ending.scale_down(step)
    elif state.activity == Activity.READING:
        step.set(retries=state.retries.note_job(event.job))
        step.then(m.AttemptBegins())
    elif state.activity == Activity.STAYING:
        ending.end_terminated(step, event.job)


def conclude(step: Step, job: Object | None) -> None:
    """Decide whether another attempt follows, now that the Job is known."""
    state = step.state
    run = step.state.run
    problem = step.state.attempt.problem
    has_failed = problem is not None or state.attempt.launch is None
    if state.is_stopped and has_failed:
        problem = ending.interruption(job, step.wall)
        ending.announce(step, problem)
        ending.finish(step, problem)
    elif problem is None:
        step.log("training finished")
        step.report(RunEvent.FINISHED, "the training ended with exit code 0")
        ending.finish(step, None)
    else:
        _retry(step, problem, is_over=run.api and (job is None or ending.is_withdrawn(job)))


def _retry(step: Step, problem: RunError, is_over: bool) -> None:
    """Make another attempt, at once or after a pause, or finish. `is_over`: none may follow."""
    state = step.state
    retries = state.retries.note_job(state.job)
    step_reached = state.progress.step
    seconds = state.attempt.seconds
    adapts = state.run.is_adaptive
    verdict = retries.judge(problem, seconds, state.failures, step_reached, adapts=adapts)
    is_end = is_over or verdict.pause is None or state.lease.has_ended
    if not is_end and verdict.is_change:
        step.log(str(problem))
    else:
        ending.announce(step, problem)
        step.set(last_failure=str(problem))
    step.set(retries=verdict.retries, failures=verdict.failures)
    if is_end or verdict.pause is None:
        if verdict.pause is None and verdict.explanation:
            step.log(verdict.explanation)
        ending.finish(step, problem)
        return
    step.log(verdict.explanation)
    if verdict.pause:
        step.set(activity=Activity.PAUSING)
        step.set_timer(TimerKind.PAUSE, step.now + verdict.pause)
    else:
        step.then(m.AttemptBegins())


def _end_pause(step: Step) -> None:
    """Begin the next attempt, unless the run has ended meanwhile."""
    if step.state.activity == Activity.PAUSING:
        step.then(m.AttemptBegins())


def on_end_reached(step: Step, event: m.EndReached) -> None:
    """End this master, and leave record and workers as they are."""
    if step.state.activity == Activity.OVER:
        return
    ending.announce(step, event.problem)
    step.set(problem=event.problem)
    step.do(m.StopWatching())
    ending.leave(step)


def on_workers_scaled(step: Step, event: m.WorkersScaled) -> None:
    """The workers are gone, or the log says which are not."""
    if step.state.activity == Activity.FINISHING:
        ending.store_results(step)
    elif step.state.activity == Activity.STAYING:
        ending.give_back(step)


def on_record_released(step: Step, event: m.RecordReleased) -> None:
    """Nothing is left to do, unless a queue would take the run for over."""
    if ending.is_preempted(step):
        ending.hand_over(step)
    else:
        step.do(m.Exit(step.state.problem))


def on_timer(step: Step, event: m.Timer) -> None:
    """The time of a timer has come. One that was cleared meanwhile does nothing."""
    if event.kind not in step.state.timers:
        return
    step.clear_timers(event.kind)
    TIMERS[event.kind](step)


def on_terminated(step: Step, event: m.Terminated) -> None:
    """This pod is asked to end: ranks may save, and nothing new begins."""
    if step.state.is_stopped:
        return
    step.set(is_stopped=True, stopped_at=step.now)
    step.do(m.Interrupt())
    if step.state.activity == Activity.TRAINING:
        training.terminate(step)
        return
    step.log("this pod is terminating")
    if step.state.activity == Activity.GATHERING:
        step.then(m.AttemptEnds(InterruptedRunError("terminated while waiting for workers")))
    elif step.state.activity == Activity.HOLDING and TimerKind.LOOK in step.state.timers:
        # The next look ends this master.
        step.clear_timers(TimerKind.LOOK)
        step.do(m.ReadRecord())
    elif step.state.activity == Activity.PAUSING:
        step.clear_timers(TimerKind.PAUSE)
        _read_job(step)
    elif step.state.activity == Activity.STAYING and not step.state.are_workers_gone:
        ending.look_before_end(step)


TIMERS: Mapping[TimerKind, Callable[[Step], None]] = {
    TimerKind.LOOK: lambda step: step.do(m.ReadRecord()),
    TimerKind.RENEW: holding.renew,
    TimerKind.WORKERS: gathering.time_out,
    TimerKind.SHRINK: gathering.lose_patience,
    TimerKind.GROW: growing.prepare,
    TimerKind.PODS: gathering.list_pods,
    TimerKind.RESUME: gathering.start_if_possible,
    TimerKind.LOSS: training.on_workers,
    TimerKind.STALLS: stalls.report_stalls,
    TimerKind.UNFINISHED: stalls.report_unfinished,
    TimerKind.LEAVE: training.interrupt,
    TimerKind.KILL: lambda step: step.do(m.EndLauncher(kills=True)),
    TimerKind.END: lambda step: step.do(m.EndLauncher()),
    TimerKind.PAUSE: _end_pause,
    TimerKind.LEASE: lease.look,
    TimerKind.STAY: ending.end_stay,
    TimerKind.SUCCESSORS: ending.look_for_successors,
}
HANDLERS: Mapping[type, Handler] = {
    m.Started: holding.begin,
    m.RecordRead: holding.look,
    m.RecordWritten: holding.on_written,
    m.RecordChanged: holding.on_changed,
    m.RecordFailed: holding.on_failed,
    m.RecordReleased: on_record_released,
    m.JobRead: on_job,
    m.LeaseRead: lease.on_read,
    m.AttemptBegins: on_attempt_begins,
    m.Prepared: on_prepared,
    m.WorkerAnswers: on_worker_answers,
    m.WorkerProblem: on_worker_problem,
    m.WorkerGone: on_worker_gone,
    m.PodsListed: on_pods,
    m.Delivered: on_delivered,
    m.NewcomersReady: growing.on_ready,
    m.NoticeTaken: training.on_notice,
    m.RankMissing: stalls.on_missing_rank,
    m.StacksShown: stalls.end_stalled,
    m.RanksAsked: training.on_asked,
    m.ProgressReported: training.on_progress,
    m.WorkerReached: training.on_worker_reached,
    m.LauncherNotStarted: training.on_not_started,
    m.LauncherEnded: training.on_launcher_ended,
    m.CauseFound: training.on_cause,
    m.AttemptEnds: on_attempt_ends,
    m.ProgressStopped: on_progress_stopped,
    m.WorkersScaled: on_workers_scaled,
    m.ResultsStored: ending.on_results,
    m.EndReached: on_end_reached,
    m.Terminated: on_terminated,
    m.Timer: on_timer,
}
