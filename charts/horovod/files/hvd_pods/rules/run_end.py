"""Rules of the end: how it is recorded, and `cleanup`."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping

from hvd_pods.rules import kept_workers
from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import RESTART_RETRY_SECONDS, ReadJob, ReportFailure, ScaleDown
from hvd_pods.rules.events import RecordPurpose
from hvd_pods.rules.run_state import Activity
from hvd_pods.shared.contract import CLEANUP
from hvd_pods.shared.errors import ConfigurationError, RunError
from hvd_pods.shared.record import FAILED, FINISHED, RUNNING, RecordKey
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
        end_or_keep_workers(decision)
    elif not state.job.is_own:
        decision.log("the workers are not scaled down: the next run of the release may use them")
        end_or_keep_workers(decision)
    elif problem and state.job.is_withdrawn:
        # Only this master can scale the workers down. The run may continue later.
        decision.set_entry(RUNNING, str(problem))
        decision.write_record(RecordPurpose.END_RUN, retry_seconds=None)
    elif state.is_terminating and state.job.will_retry(code, decision.wall):
        end_or_keep_workers(decision)
    else:
        decision.set_entry(FAILED if problem else FINISHED, str(problem or ""))
        decision.write_record(RecordPurpose.END_RUN, retry_seconds=None)


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
        end_or_keep_workers(decision)


def leave_workers(decision: Decision) -> None:
    """Leave the workers as they are: they may be another master's."""
    names = " ".join(decision.state.run.stateful_sets)
    decision.log(
        "the workers are not scaled down: nothing shows that no other master has them; to do it "
        f"yourself: kubectl scale statefulset --replicas 0 {names}"
    )
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
