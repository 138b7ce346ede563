"""Rules of a launch: events while it runs, and the cause of its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping

from hvd_pods.rules import launch_abort, missing_workers, rank_notices, stalls
from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import (
    AskRanksToEnd,
    CheckRanks,
    DetachLauncher,
    EndLauncher,
    EndLeftovers,
    FindCause,
    FollowProgress,
    ReadJob,
    ReleaseRanks,
    StartLauncher,
)
from hvd_pods.rules.events import (
    AttemptOver,
    Cause,
    CauseFound,
    Delivered,
    LauncherEnded,
    LauncherNotStarted,
    ProgressReported,
    RanksAskedToEnd,
    RanksChecked,
    RecordPurpose,
    WorkerReached,
)
from hvd_pods.rules.job_state import NOT_READ, JobReading
from hvd_pods.rules.launch_abort import LAUNCHER_GRACE_PERIOD_SECONDS
from hvd_pods.rules.run_state import Activity, LaunchState, RunState
from hvd_pods.rules.timers import TimerKind
from hvd_pods.rules.worker_names import describe_loss, format_used_workers
from hvd_pods.shared.errors import (
    ConfigurationError,
    LaunchError,
    LostWorkerError,
    NotANumberError,
    ResizedError,
    RunError,
    WorkerTerminatedError,
)
from hvd_pods.shared.launcher_options import LAUNCH
from hvd_pods.shared.objects import format_time
from hvd_pods.shared.pod_problems import exceeds_own_limit
from hvd_pods.shared.record import RUNNING
from hvd_pods.shared.run import Run
from hvd_pods.shared.run_events import RunEvent

# Timeout in seconds for a terminating master to read the Job; at most a sixth of its grace.
JOB_READ_TIMEOUT_SECONDS = 5.0
# Seconds beyond the Job's back-off after which ranks that wait for another master end.
ORPHAN_RESERVE_SECONDS = 60.0
# Seconds of its grace period that the master keeps, at most half of it: to end the remaining ranks,
# and for the bookkeeping.
LAUNCH_END_RESERVE_SECONDS = 15.0
# Seconds between two checks of lost workers whose ranks may still save.
LOSS_CHECK_INTERVAL_SECONDS = 1.0
TERMINATED = "terminated: deleted, evicted, or its node drained or shut down"


def begin(decision: Decision, event: Delivered) -> None:
    """Start the launcher on the workers that have the code, or fail."""
    state = decision.state
    run = state.run
    answering = state.attempt_workers.answering
    if event.problem or state.is_terminating:
        problem = event.problem or RunError("terminated before the ranks were started")
        if any(answering.get(name) != pod for name, pod in state.attempt.pods.items()):
            # The response may be from another pod at the address of a removed pod: the problem is
            # not final.
            problem = RunError(str(problem))
        decision.add_event(AttemptOver(problem))
        return
    chosen = [name for name in state.assignment.workers if name in event.workers]
    orphan_fence = state.record_lock.fence if run.mode == "direct" else 0
    decision.state = replace(
        state,
        activity=Activity.TRAINING,
        was_training=True,
        orphan_fence=orphan_fence,
        attempt=replace(state.attempt, launch=LaunchState(tuple(chosen))),
        launches=state.launches + 1,
        used_workers=format_used_workers(run, chosen),
    )
    number = decision.attempt.number
    message = (
        f"attempt {number}: {run.mode} starts {decision.state.ranks} ranks on {len(chosen)} workers"
    )
    decision.report(RunEvent.TRAINING, message)
    addresses = {name: answering[name].address for name in chosen if name in answering}
    orphan_seconds = decision.state.job.backoff_seconds + ORPHAN_RESERVE_SECONDS
    decision.add_effects(StartLauncher(number, chosen, addresses, orphan_seconds))
    decision.add_effects(FollowProgress(number, chosen))
    decision.set_entry(RUNNING, decision.state.last_failure)
    decision.write_record(RecordPurpose.BEGIN_LAUNCH)
    on_workers(decision)


def on_workers(decision: Decision) -> None:
    """Update the running launcher after workers have come or gone."""
    if decision.state.activity != Activity.TRAINING:
        return
    _look_for_loss(decision)
    _end_leftovers(decision)


def _look_for_loss(decision: Decision) -> None:
    """End the launch as soon as one of its workers is lost.

    The launcher may not notice for minutes: a node without power closes no connection.
    """
    attempt = decision.attempt
    lost = missing_workers.find_silent(decision)
    answering = attempt.workers.answering
    if all(worker.name in answering for worker in lost):
        # A broken connection alone is not a loss.
        return
    if not attempt.launch or attempt.launch.problem:
        return
    terminating = attempt.launch.terminating
    if all(terminating.get(worker.name, 0.0) > decision.now for worker in lost):
        # A terminating worker no longer answers, but its ranks may be saving.
        decision.set_timer(TimerKind.LOSS, decision.now + LOSS_CHECK_INTERVAL_SECONDS)
        return
    launch_abort.abort(decision, missing_workers.announce_loss(decision, lost))


def _end_leftovers(decision: Decision) -> None:
    """End processes of earlier attempts on workers that answer and have no ranks of this attempt.

    Ranks may still run there when the network was cut. A worker that was unreachable comes back
    with its running processes.
    """
    attempt = decision.attempt
    answering = decision.attempt_workers.answering
    without_ranks = frozenset(answering) - frozenset(decision.launch.workers)
    new = sorted(without_ranks - attempt.cleared)
    decision.attempt = replace(decision.attempt, cleared=without_ranks)
    if new:
        addresses = {name: pod.address for name, pod in answering.items()}
        decision.add_effects(EndLeftovers(attempt.number, addresses, new))


def terminate(decision: Decision) -> None:
    """Handle the request to end this pod: read the Job if the ranks may continue."""
    run = decision.state.run
    launch = decision.attempt.launch
    is_ending = launch is None or launch.problem or len(launch.workers) == 1
    if run.mode == "direct" and run.has_api_access and not is_ending:
        timeout_seconds = min(JOB_READ_TIMEOUT_SECONDS, run.grace_seconds / 6)
        decision.set_timer(TimerKind.LEAVE, decision.now + timeout_seconds)
        decision.add_effects(ReadJob(timeout_seconds, is_for_orphans=True))
    else:
        interrupt(decision)


def interrupt(decision: Decision, job: JobReading = NOT_READ) -> None:
    """Let the ranks of this pod save, or continue if the Job creates another master."""
    decision.clear_timers(TimerKind.LEAVE)
    grace = decision.state.run.grace_seconds
    seconds = grace - min(LAUNCH_END_RESERVE_SECONDS, grace / 2)
    decision.log(f"this pod is terminating: the ranks have {seconds:.0f} s to save")
    decision.set_timer(TimerKind.END, decision.now + seconds)
    decision.launch = replace(decision.launch, is_asking=True)
    number = decision.attempt.number
    workers = decision.launch.workers
    if job.is_continued(decision.wall):
        decision.add_effects(CheckRanks(number, workers))
    else:
        decision.add_effects(AskRanksToEnd(number, workers))


def on_ranks_checked(decision: Decision, event: RanksChecked) -> None:
    """Leave the ranks to the next master if all may stay; otherwise ask them to end."""
    launch = decision.launch
    if decision.state.activity != Activity.TRAINING or launch.problem:
        # The launch has ended meanwhile, or is being ended.
        decision.launch = replace(launch, is_asking=False)
        rank_notices.release_ended(decision)
        return
    if not event.may_stay:
        decision.add_effects(AskRanksToEnd(decision.attempt.number, launch.workers))
        return
    decision.launch = replace(launch, is_asking=False)
    decision.add_effects(DetachLauncher())
    decision.log("the ranks go on until another master has come")
    decision.set_timer(TimerKind.KILL, decision.now + LAUNCHER_GRACE_PERIOD_SECONDS)


def on_ranks_asked_to_end(decision: Decision, event: RanksAskedToEnd) -> None:
    """Note that all ranks were asked to end.

    Ranks not started by rank/start.py react only to SIGTERM.
    """
    decision.launch = replace(decision.launch, is_asking=False)
    rank_notices.release_ended(decision)
    if not event.number:
        decision.add_effects(EndLauncher())


def on_progress(decision: Decision, event: ProgressReported) -> None:
    """Handle reported progress; end the attempt for a loss of NaN if the run wants it."""
    progress = decision.state.progress.take(
        event.progress, decision.now, format_time(decision.wall)
    )
    decision.state = replace(decision.state, progress=progress)
    if progress.is_nan and decision.state.run.fail_on_nan:
        launch_abort.abort(decision, NotANumberError())
    warn_of_nan(decision)


def warn_of_nan(decision: Decision) -> None:
    """Warn once in an attempt that the loss is NaN, if that does not end the attempt."""
    state = decision.state
    if not state.progress.is_nan or state.run.fail_on_nan or state.attempt.is_nan_logged:
        return
    decision.attempt = replace(decision.attempt, is_nan_logged=True)
    progress = decision.state.progress
    step_of = "step {step} of this attempt" if progress.is_counted else "step {step}"
    at = step_of.format(step=progress.reported["step"])
    text = f"the loss is NaN at {at}: `launch.failOnNaN=true` ends such a run"
    decision.log(f"warning: {text}")
    decision.report(RunEvent.NOT_A_NUMBER, text)


def on_worker_reached(decision: Decision, event: WorkerReached) -> None:
    """Note that the launcher has started a program in a worker."""
    decision.state = replace(decision.state, has_reached_worker=True)


def on_not_started(decision: Decision, event: LauncherNotStarted) -> None:
    """End the attempt whose launcher could not be started."""
    decision.add_event(AttemptOver(event.problem))


def on_launcher_ended(decision: Decision, event: LauncherEnded) -> None:
    """End the attempt whose launcher has ended, or find the cause of the failure."""
    launch = replace(decision.launch, exit_code=event.exit_code)
    attempt = replace(decision.attempt, seconds=event.seconds, launch=launch)
    decision.state = replace(decision.state, activity=Activity.FINDING_CAUSE, attempt=attempt)
    decision.clear_timers(TimerKind.LEAVE)
    if launch.waiting:
        decision.add_effects(ReleaseRanks(launch.waiting))
    if _has_finished(decision.state.run, launch):
        if launch.terminating:
            names = ", ".join(launch.terminating)
            decision.log(f"{names} was terminated, but the ranks ended with 0: the run is finished")
        decision.add_event(AttemptOver(_find_idleness(decision.state)))
    elif launch.problem:
        decision.add_event(AttemptOver(launch.problem))
    else:
        _find_cause(decision)


def _has_finished(run: Run, launch: LaunchState) -> bool:
    """Return whether the ranks of a launch that has ended have come to their own end.

    They may have ended just when a worker was lost. Ranks that were ended for another reason have
    not finished, whatever exit code their signal handlers produce. Only the launcher of mode direct
    never exits with 0 after a request to end.
    """
    problem = launch.problem
    may_have_ended = isinstance(problem, LostWorkerError) or (
        isinstance(problem, ResizedError) and run.mode == "direct"
    )
    return launch.exit_code == 0 and (problem is None or may_have_ended)


def _find_cause(decision: Decision) -> None:
    """Request the cause of the launch's failure."""
    attempt = decision.attempt
    launch = decision.launch
    decision.add_effects(
        FindCause(
            attempt.number,
            launch.exit_code,
            launch.workers,
            launch.exception_notices,
            launch.exit_notices,
            {name: attempt.pods[name].uid for name in launch.terminating if name in attempt.pods},
            asks_for_binding=_may_have_failed_to_bind(decision.state.run, launch),
        )
    )


def _may_have_failed_to_bind(run: Run, launch: LaunchState) -> bool:
    """Return whether Open MPI's daemon may have crashed because it could not bind ranks.

    mpirun reports that as a network failure.
    """
    has_started = launch.exception_notices or launch.exit_notices
    return run.mode == "mpirun" and run.binding.to != "none" and not has_started


def _find_idleness(state: RunState) -> RunError | None:
    """Return the problem of a command that ended with 0 without using the workers."""
    run = state.run
    if run.mode != "custom" or run.allow_idle_workers or state.has_reached_worker:
        return None
    return ConfigurationError(
        "custom ended with exit code 0 and started nothing in a worker: the command ran in the "
        f"master alone. Let it start its ranks with mpirun, ssh or {LAUNCH}, or set "
        "`launch.allowIdleWorkers: true` if it needs no worker"
    )


def on_cause(decision: Decision, event: CauseFound) -> None:
    """Report why the launcher failed: the first failed rank, unless its worker is lost."""
    run = decision.state.run
    launch = decision.launch
    code = launch.exit_code
    cause = _choose_cause(event)
    if launch.terminating:
        decision.add_event(
            AttemptOver(_explain_leaving(", ".join(launch.terminating), event.evictions, code))
        )
        return
    silent = missing_workers.find_silent(decision)
    # The address of a silent worker may now belong to another release's worker, with other keys.
    if cause and cause.is_final and not silent:
        decision.add_event(AttemptOver(ConfigurationError(cause.text)))
    elif silent:
        # Errors of ranks are then usually a consequence.
        also = f"; {cause.text}" if cause else ""
        decision.add_event(AttemptOver(LostWorkerError(describe_loss(silent) + also, code)))
    elif cause and _note_broken(decision, cause.broken_worker):
        decision.add_event(AttemptOver(LostWorkerError(cause.text, code)))
    elif cause:
        repeats = cause.what if cause.is_sure_to_repeat else ""
        text = cause.text + _describe_finished(decision)
        decision.add_event(AttemptOver(LaunchError(text, code, repeats, cause.is_permanent)))
    else:
        message = f"{run.mode} ended with exit code {code}: its last lines above say why"
        decision.add_event(AttemptOver(LaunchError(message, code)))


def _choose_cause(event: CauseFound) -> Cause | None:
    """Return the root cause: without valid keys or a binding, no rank has started."""
    if event.key_problem:
        return Cause("a worker: ", event.key_problem, is_sure_to_repeat=True, is_final=True)
    if event.binding_problem:
        return Cause("", event.binding_problem, is_sure_to_repeat=True, is_final=True)
    return event.cause


def _note_broken(decision: Decision, worker: str) -> bool:
    """Exclude a pod whose GPU has failed from attempts; return whether the failure is new."""
    pod = decision.attempt.pods.get(worker)
    if pod is None or pod in decision.state.broken_pods:
        return False
    decision.state = replace(decision.state, broken_pods=decision.state.broken_pods | {pod})
    text = f"a GPU of {worker} has failed: it is used only where there are too few other workers; "
    text += f"to keep other runs off its node: kubectl cordon {pod.node or 'NODE'}"
    decision.log(text)
    decision.report(RunEvent.GPU_FAILED, text)
    return True


def _describe_finished(decision: Decision) -> str:
    """Name the ranks that had ended with 0: the others cannot continue without them."""
    launch = decision.launch
    if not launch.finished:
        return ""
    return f"; {stalls.name_ranks(launch.finished)} had ended with exit code 0"


def _explain_leaving(names: str, evictions: Mapping[str, str], code: int) -> RunError:
    """Return the problem of an attempt whose workers, in `names`, were terminated.

    A worker that exceeded its own limit would exceed it again: that is a failure.
    """
    for name, message in evictions.items():
        if exceeds_own_limit(message):
            return LaunchError(f"{name} was evicted: {message}", code)
    reasons = "; ".join(dict.fromkeys(evictions.values()))
    ending = f"evicted: {reasons}" if reasons else TERMINATED
    return WorkerTerminatedError(f"{names} was {ending}", code)
