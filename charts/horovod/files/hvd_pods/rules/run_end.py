"""Rules of the end: how it is recorded, `cleanup`, and the results."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping

from hvd_pods.rules import kept_workers
from hvd_pods.rules.decision import END, Decision
from hvd_pods.rules.effects import ReadJob, ReportFailure, ScaleDown, StoreResults
from hvd_pods.rules.events import ResultsStored
from hvd_pods.rules.state import Activity
from hvd_pods.shared.contract import CLEANUP
from hvd_pods.shared.errors import ConfigurationError, InterruptedRunError, RunError
from hvd_pods.shared.objects import RESTART_RETRY_SECONDS
from hvd_pods.shared.record import FAILED, FINISHED, RUNNING, STORED, RecordKey
from hvd_pods.shared.run_events import RunEvent


def announce(decision: Decision, problem: RunError) -> None:
    """Write why the run failed to the log, the termination message and an event."""
    decision.add_effects(ReportFailure(problem))
    decision.report(RunEvent.FAILED, str(problem))


def repeat_end(decision: Decision, earlier: Mapping[str, str]) -> None:
    """Report the earlier end of this run from the record, instead of running it again."""
    result = f"this run already {earlier[RecordKey.STATE].lower()} at {earlier.get(RecordKey.TIME)}"
    remedy = "to run the same values again, increment `master.generation`"
    problem: RunError | None = None
    if earlier[RecordKey.STATE] == FINISHED:
        decision.log(f"{result}: nothing to do; {remedy}")
        decision.report(RunEvent.FINISHED, f"{result}; {remedy}")
    else:
        problem = ConfigurationError(f"{result}: {earlier.get(RecordKey.REASON)}; {remedy}")
        announce(decision, problem)
    decision.state = replace(decision.state, activity=Activity.FINISHING, problem=problem)
    decision.add_effects(ReadJob(RESTART_RETRY_SECONDS))


def finish(decision: Decision, problem: RunError | None) -> None:
    """Record how the run ended and scale the workers down, unless another master continues it.

    `problem` is None for a finished run.
    """
    code = problem.exit_code if problem else 0
    decision.state = replace(decision.state, activity=Activity.FINISHING, problem=problem)
    state = decision.state
    if state.record_lock.lost_to:
        end_or_keep_workers(decision)
    elif not state.run.has_api_access:
        if state.run.cleanup != "Never":
            decision.log("the workers stay: without a service account the master cannot scale them")
        store_results(decision)
    elif not state.job.is_own:
        decision.log("the workers are not scaled down: the next run of the release may use them")
        store_results(decision)
    elif problem and state.job.is_withdrawn:
        # Only this master can scale the workers down. The run may continue later.
        decision.set_entry(RUNNING, str(problem))
        decision.write_record(END, retry_seconds=None)
    elif state.is_terminating and state.job.will_retry(code, decision.wall):
        store_results(decision)
    else:
        decision.set_entry(FAILED if problem else FINISHED, str(problem or ""))
        decision.write_record(END, retry_seconds=None)


def clean_up(decision: Decision) -> None:
    """Scale the workers to 0 if `cleanup` asks for that; an upgrade may have changed it."""
    state = decision.state
    job = state.job
    cleanup = job.annotations.get(CLEANUP, state.run.cleanup)
    is_wanted = cleanup == "Always" or state.problem is None or job.is_withdrawn
    # With any `cleanup`, a suspended run has no workers. Neither has a run whose command no longer
    # renews the lease, nor a session's run that was withdrawn.
    is_forgotten = state.lease.has_ended or bool(state.lease.seconds and job.is_withdrawn)
    if (is_wanted and cleanup != "Never") or is_forgotten or job.is_suspended:
        decision.state = replace(decision.state, are_workers_gone=True)
        decision.add_effects(ScaleDown())
    else:
        store_results(decision)


def leave_workers(decision: Decision) -> None:
    """Leave the workers as they are: they may be another master's."""
    names = " ".join(decision.state.run.stateful_sets)
    decision.log(
        "the workers are not scaled down: nothing shows that no other master has them; to do it "
        f"yourself: kubectl scale statefulset --replicas 0 {names}"
    )
    store_results(decision)


def store_results(decision: Decision) -> None:
    """Store the results if the run has ended and asks for that; then end this master."""
    state = decision.state
    run = state.run
    problem = state.problem
    is_wanted = run.results_timeout_seconds and (problem is None or run.results_on_failure)
    has_result = not isinstance(problem, InterruptedRunError)
    if not (has_result and is_wanted) or state.results == STORED:
        end_or_keep_workers(decision)
        return
    left = state.job.seconds_left(decision.wall)
    decision.state = replace(state, activity=Activity.STORING)
    decision.add_effects(StoreResults(min(left, run.results_timeout_seconds)))


def on_results(decision: Decision, event: ResultsStored) -> None:
    """Note whether the results are stored. The outcome of the training stays the same."""
    state = decision.state
    problem = state.problem
    results = event.failure or STORED
    entry = {**state.entry, RecordKey.RESULTS: results} if state.entry else state.entry
    decision.state = replace(state, results=results, entry=entry)
    # Write this now: the following release of the record is retried only for seconds.
    decision.write_record("results", retry_seconds=None)
    if not event.failure:
        decision.log("the results are stored")
        decision.report(RunEvent.RESULTS_STORED, "the results are stored")
        end_or_keep_workers(decision)
        return
    text = f"the results could not be stored: {event.failure}"
    decision.report(RunEvent.RESULTS_NOT_STORED, text)
    if problem:
        decision.log(text)
    else:
        # The training has finished: the termination message is otherwise empty.
        decision.add_effects(ReportFailure(RunError(text)))
    again = InterruptedRunError(text)
    if (
        decision.state.is_terminating
        and decision.state.job.is_own
        and decision.state.job.will_retry(again.exit_code, decision.wall)
    ):
        # Another master stores the results.
        decision.state = replace(decision.state, problem=again)
    end_or_keep_workers(decision)


def end_or_keep_workers(decision: Decision) -> None:
    """Release the record and end, or wait for the session's next run."""
    if not kept_workers.are_left(decision):
        decision.end_master()
    elif decision.state.is_terminating:
        kept_workers.begin(decision)
        kept_workers.look_before_end(decision)
    else:
        kept_workers.keep(decision)
