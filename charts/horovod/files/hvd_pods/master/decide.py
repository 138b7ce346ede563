"""All rules of a run's life: what follows from an event.

`decide` is pure: it reads no clock, waits for nothing and changes nothing but the state that it
returns. docs/inside.md shows how a run goes through it.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

from hvd_pods.common.errors import (
    ConfigurationError,
    LostHostError,
    NotANumberError,
    RunError,
    WorkerLeftError,
)
from hvd_pods.master import ending, gathering, holding, training
from hvd_pods.master.kube import AGAIN_RETRY_SECONDS, Object
from hvd_pods.master.messages import (
    AttemptBegins,
    AttemptEnds,
    AttemptEvent,
    BeginAttempt,
    CauseFound,
    Delivered,
    Effect,
    Emit,
    EndLauncher,
    EndReached,
    Event,
    Exit,
    FitWorkers,
    HostAnswers,
    HostGone,
    HostProblem,
    Interrupt,
    JobRead,
    LauncherEnded,
    LaunchFailed,
    Moment,
    NoticeTaken,
    PodsListed,
    Prepare,
    Prepared,
    ProgressReported,
    ProgressStopped,
    RankMissing,
    RanksAsked,
    ReadJob,
    ReadRecord,
    RecordChanged,
    RecordFailed,
    RecordRead,
    RecordReleased,
    RecordWritten,
    RepeatEnd,
    ResultsStored,
    StacksShown,
    Started,
    StopProgress,
    StopWatching,
    Terminated,
    TimedOut,
    Timer,
    WatchHosts,
    WorkersProvided,
    WorkersScaled,
)
from hvd_pods.master.reported_progress import Progress
from hvd_pods.master.state import (
    CONCLUDING,
    DELIVERING,
    FINISHED,
    FINISHING,
    GATHERING,
    HOLDING,
    JUDGING,
    OVER,
    PAUSING,
    READING,
    RUNNING,
    TRAINING,
    Attempt,
    State,
    Step,
)

Handler = Callable[[Step, Any], None]
# The timers of an attempt, which end with it.
OF_ATTEMPT = ("hosts", "list", "pods", "resume", "loss", "kill", "end", "stalls", "deliver")


def decide(state: State, event: Event, moment: Moment) -> tuple[State, tuple[Effect, ...]]:
    """Return the state after an event, and what is to be done, in this order."""
    step = Step(state, moment)
    step.then(event)
    while step.following:
        _handle(step, step.following.pop(0))
    return step.state, tuple(step.effects)


def _handle(step: Step, event: Event) -> None:
    if isinstance(event, AttemptEvent) and event.attempt != step.state.attempt.number:
        # It comes too late: its attempt has ended.
        return
    HANDLERS[type(event)](step, event)


def on_started(step: Step, event: Started) -> None:
    """Take the record."""
    holding.begin(step)


def on_attempt_begins(step: Step, event: AttemptBegins) -> None:
    """Begin an attempt: ask the hosts, and prepare the launcher meanwhile."""
    state, run = step.state, step.state.run
    if state.is_stopped:
        _read_job(step)
        return
    number, epoch = state.attempts + 1, state.hold.epoch + 1
    step.set_hold(epoch=epoch)
    step.set(attempts=number, attempt=Attempt(number), progress=Progress(), phase=GATHERING)
    step.record(RUNNING, state.last_failure)
    step.do(BeginAttempt(number, epoch))
    step.write_record("begin")
    if run.api and not state.facts.is_test:
        step.do(FitWorkers())
    is_resumed = run.elastic and state.was_training
    step.do(WatchHosts(number), Prepare(number, is_resumed))
    step.do(Emit("Started", f"waiting for workers of {run.ranks} ranks"))
    step.log(f"waiting for hosts of {run.ranks} ranks, at most {run.hosts_timeout:.0f} s")
    gathering.begin(step)


def on_prepared(step: Step, event: Prepared) -> None:
    """The launcher is prepared."""
    if step.state.phase != GATHERING:
        return
    if event.problem:
        step.end_attempt(event.problem)
        return
    step.set_attempt(is_prepared=True)
    gathering.start_if_possible(step)


def on_host_answers(step: Step, event: HostAnswers) -> None:
    """A host answers."""
    gathering.on_answer(step, event)
    training.on_hosts(step)


def on_host_problem(step: Step, event: HostProblem) -> None:
    """A host does not answer."""
    gathering.on_problem(step, event)
    training.on_hosts(step)


def on_host_gone(step: Step, event: HostGone) -> None:
    """A host has another pod, or none."""
    gathering.on_gone(step, event)
    training.on_hosts(step)


def on_delivered(step: Step, event: Delivered) -> None:
    """Hosts have the user's code."""
    if step.state.phase == DELIVERING:
        training.begin(step, event)
    elif step.state.phase == TRAINING:
        training.on_delivered(step, event)


def on_launch_failed(step: Step, event: LaunchFailed) -> None:
    """The launcher could not be started."""
    step.end_attempt(event.problem)


def on_stacks_shown(step: Step, event: StacksShown) -> None:
    """The stacks of stalled ranks are in the log."""
    training.end_stalled(step)


def on_attempt_ends(step: Step, event: AttemptEnds) -> None:
    """The attempt is over: take the last step that was reported, then read the Job."""
    attempt = step.state.attempt
    step.clear_timers(*OF_ATTEMPT)
    step.set_attempt(problem=event.problem)
    step.set(phase=JUDGING)
    step.do(StopWatching())
    # The next attempt is compared with the last step. A host that is lost cannot tell it.
    is_known = not isinstance(event.problem, LostHostError)
    step.do(StopProgress(attempt.number, tells_last=is_known))


def on_progress_stopped(step: Step, event: ProgressStopped) -> None:
    """Everything that an attempt has told is known: read what the Job says of another one."""
    state = step.state
    if state.phase != JUDGING:
        return
    if state.attempt.problem is None and state.run.fail_on_nan and state.progress.is_nan:
        step.set_attempt(problem=NotANumberError())
    if state.hold.lost_to:
        step.end(holding.superseded(state.hold.lost_to))
    elif state.facts.is_test:
        conclude(step, state.job)
    else:
        _read_job(step)


def _read_job(step: Step) -> None:
    state = step.state
    step.set(phase=CONCLUDING)
    if not state.run.api:
        conclude(step, None)
        return
    # Only the end depends on what the Job says: another attempt does not wait long for it.
    is_failure = state.attempt.problem is not None and not state.is_stopped
    step.do(ReadJob(state.is_stopped, AGAIN_RETRY_SECONDS if is_failure else None))


def on_job(step: Step, event: JobRead) -> None:
    """The Job was read."""
    state = step.state
    step.set(job=event.job)
    if state.phase == CONCLUDING:
        conclude(step, event.job)
    elif state.phase == FINISHING:
        ending.scale_down(step)
    elif state.phase == READING:
        step.set(retries=state.retries.note_job(event.job))
        step.begin_attempt()


def conclude(step: Step, job: Object | None) -> None:
    """Decide whether another attempt follows, now that the Job is known."""
    state, run, problem = step.state, step.state.run, step.state.attempt.problem
    has_failed = problem is not None or state.attempt.launched is None
    if state.is_stopped and has_failed and not state.facts.is_test:
        problem = ending.interruption(job)
        ending.announce(step, problem)
        ending.finish(step, problem)
    elif problem is None:
        step.log("training finished")
        step.do(Emit("Finished", "the training ended with exit code 0"))
        ending.finish(step, None)
    else:
        ending.announce(step, problem)
        _retry(step, problem, is_deleted=run.api and job is None)


def _retry(step: Step, problem: RunError, is_deleted: bool) -> None:
    state = step.state
    if isinstance(problem, WorkerLeftError):
        step.set(last_failure=str(problem))
        step.log("the next attempt begins at once; this one does not count as a failure")
        pause: float | None = 0.0
    else:
        step.set(failures=state.failures + 1, last_failure=str(problem))
        retries, failures = state.retries.note_job(state.job), step.state.failures
        verdict = retries.judge(problem, state.attempt.seconds, failures, state.progress.step)
        step.set(retries=verdict.retries)
        if verdict.explanation:
            step.log(verdict.explanation)
        pause = verdict.pause
    if is_deleted or pause is None or state.facts.is_test:
        ending.finish(step, problem)
    elif pause:
        step.set(phase=PAUSING)
        step.set_timer("pause", step.now + pause)
    else:
        step.begin_attempt()


def on_repeat_end(step: Step, event: RepeatEnd) -> None:
    """Report how this run ended before, instead of running it again."""
    earlier = event.data
    result = f"this run already {earlier['state'].lower()} at {earlier.get('time')}"
    remedy = "to run the same values again, increment master.generation"
    problem: RunError | None = None
    if earlier["state"] == FINISHED:
        step.log(f"{result}: nothing to do; {remedy}")
        step.do(Emit("Finished", f"{result}; {remedy}"))
    else:
        problem = ConfigurationError(f"{result}: {earlier.get('reason')}; {remedy}")
        ending.announce(step, problem)
    step.set(phase=FINISHING, problem=problem)
    step.do(ReadJob(is_stopped=False, within=AGAIN_RETRY_SECONDS))


def on_end_reached(step: Step, event: EndReached) -> None:
    """End this master, and leave record and workers as they are."""
    if step.state.phase == OVER:
        return
    ending.announce(step, event.problem)
    step.set(problem=event.problem)
    step.do(StopWatching())
    ending.leave(step)


def on_record_written(step: Step, event: RecordWritten) -> None:
    """The record has the news."""
    if event.purpose == ending.END:
        _end_is_recorded(step)
    else:
        holding.on_written(step, event)


def on_record_failed(step: Step, event: RecordFailed) -> None:
    """The record does not have the news."""
    holding.on_failed(step, event)
    if event.purpose == ending.END:
        _end_is_recorded(step)


def _end_is_recorded(step: Step) -> None:
    if step.state.phase == FINISHING:
        ending.scale_down(step)


def on_record_read(step: Step, event: RecordRead) -> None:
    """The record was read."""
    holding.look(step, event.data)


def on_workers_provided(step: Step, event: WorkersProvided) -> None:
    """The workers of a test are there."""
    if event.problem:
        step.end(event.problem)
    else:
        step.begin_attempt()


def on_workers_scaled(step: Step, event: WorkersScaled) -> None:
    """The workers are gone."""
    if step.state.phase == FINISHING:
        ending.store_results(step)


def on_record_released(step: Step, event: RecordReleased) -> None:
    """Nothing is left to do."""
    step.do(Exit(step.state.problem))


def on_timer(step: Step, event: Timer) -> None:
    """The time of a timer has come."""
    if event.name not in step.state.timers:
        return
    step.clear_timers(event.name)
    TIMERS[event.name](step)


def on_terminated(step: Step, event: Terminated) -> None:
    """This pod is asked to end: ranks may save, and nothing new begins."""
    if step.state.is_stopped:
        return
    step.set(is_stopped=True)
    step.do(Interrupt())
    if step.state.phase == TRAINING:
        training.interrupt(step)
        return
    step.log("this pod is terminating")
    if step.state.phase == GATHERING:
        gathering.interrupt(step)
    elif step.state.phase == HOLDING and "look" in step.state.timers:
        # The next look ends this master.
        step.clear_timers("look")
        step.do(ReadRecord())
    elif step.state.phase == PAUSING:
        step.clear_timers("pause")
        _read_job(step)


def on_timed_out(step: Step, event: TimedOut) -> None:
    """The time of a test is over, whatever it waits for."""
    if step.state.phase == TRAINING:
        step.set(is_stopped=True)
        step.do(EndLauncher())
    else:
        on_terminated(step, Terminated())


TIMERS: Mapping[str, Callable[[Step], None]] = {
    "look": lambda step: step.do(ReadRecord()),
    "renew": holding.renew,
    "hosts": gathering.on_deadline,
    "list": gathering.time_out,
    "pods": gathering.list_pods,
    "resume": gathering.start_if_possible,
    "loss": training.on_hosts,
    "stalls": training.report_stalls,
    "deliver": training.deliver,
    "kill": lambda step: step.do(EndLauncher(kills=True)),
    "end": lambda step: step.do(EndLauncher()),
    "pause": lambda step: step.begin_attempt(),
}
HANDLERS: Mapping[type, Handler] = {
    Started: on_started,
    RecordRead: on_record_read,
    RecordWritten: on_record_written,
    RecordChanged: holding.on_changed,
    RecordFailed: on_record_failed,
    RecordReleased: on_record_released,
    RepeatEnd: on_repeat_end,
    JobRead: on_job,
    AttemptBegins: on_attempt_begins,
    Prepared: on_prepared,
    HostAnswers: on_host_answers,
    HostProblem: on_host_problem,
    HostGone: on_host_gone,
    PodsListed: gathering.on_pods,
    Delivered: on_delivered,
    LaunchFailed: on_launch_failed,
    NoticeTaken: training.on_notice,
    RankMissing: training.on_missing_rank,
    StacksShown: on_stacks_shown,
    RanksAsked: training.on_asked,
    ProgressReported: training.on_progress,
    LauncherEnded: training.on_launcher_ended,
    CauseFound: training.on_cause,
    AttemptEnds: on_attempt_ends,
    ProgressStopped: on_progress_stopped,
    WorkersProvided: on_workers_provided,
    WorkersScaled: on_workers_scaled,
    ResultsStored: ending.on_results,
    EndReached: on_end_reached,
    Terminated: on_terminated,
    TimedOut: on_timed_out,
    Timer: on_timer,
}
