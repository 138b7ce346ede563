"""Rules of the workers: which ones an attempt uses, which are missing and why, which are lost.

A run has a number of workers in each group. It begins as soon as that number of each group answers,
in any combination. The other workers get no ranks: they are spares. After a failure the next
attempt chooses again, so that a spare replaces a lost worker. A run whose groups have a minimum
begins without missing workers, and adds them later (rules/newcomers.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Mapping

from hvd_pods.rules import missing_workers, pod_replacement, worker_selection
from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import CountFinished, Deliver, FreezeAddresses, ListPods, ScaleUp
from hvd_pods.rules.events import (
    AttemptOver,
    FinishedCounted,
    PodsListed,
    WorkerAnswers,
    WorkerGone,
    WorkerProblem,
)
from hvd_pods.rules.run_state import Activity, AttemptWorkers, RunState
from hvd_pods.rules.timers import TimerKind
from hvd_pods.rules.worker_names import describe_spares, parse_used_workers
from hvd_pods.shared.errors import WorkersTimeoutError
from hvd_pods.shared.pod_problems import Diagnosis
from hvd_pods.shared.record import RecordKey
from hvd_pods.shared.run import Pod
from hvd_pods.shared.run_events import RunEvent

# Seconds until the pods of missing workers are read: soon at first, because an upgrade may have
# left pods that will never answer; then rarely, because each read is a request to the API server.
FIRST_POD_READ_DELAY_SECONDS = 1.0
MISSING_POD_POLL_INTERVAL_SECONDS = 5.0
# Timeout in seconds for the answers of all workers whose ranks may have finished without a master.
ORPHANS_ANSWER_TIMEOUT_SECONDS = 5.0
# Seconds to wait for workers that answered in the previous attempt, when there are enough others.
EARLIER_WORKERS_TIMEOUT_SECONDS = 3.0
# Seconds between two reads of pods while ranks train without them.
TRAINING_POD_POLL_INTERVAL_SECONDS = 60.0
# Factor on launch.lostAfterSeconds while all workers are silent: the master itself may be offline.
MASTER_OFFLINE_FACTOR = 5


def begin(decision: Decision) -> None:
    """Wait for the workers of an attempt that begins."""
    decision.set_timer(TimerKind.PODS, decision.now + FIRST_POD_READ_DELAY_SECONDS)
    if _orphan_fence(decision.state):
        decision.set_timer(TimerKind.RESUME, decision.now + ORPHANS_ANSWER_TIMEOUT_SECONDS)
    extend_deadline(decision)


def expect(state: RunState) -> AttemptWorkers:
    """Return the state for the next attempt: the workers that should answer at once.

    These are workers of the present attempt that still answer, or of the attempt that another
    master has left.
    """
    before = state.attempt
    if before.launch:
        gone = {*before.workers.reasons, *before.launch.terminating}
        expected = frozenset(before.workers.answering) - gone
        return AttemptWorkers(expected=expected, patience_seconds=EARLIER_WORKERS_TIMEOUT_SECONDS)
    if state.was_training:
        recorded = parse_used_workers(state.run, state.recorded_workers)
        names = frozenset(worker.name for worker in recorded)
        return AttemptWorkers(expected=names, patience_seconds=state.run.shrink_after_seconds)
    return AttemptWorkers(patience_seconds=state.run.shrink_after_seconds)


def lose_patience(decision: Decision) -> None:
    """Begin without the missing workers, if the run has enough others."""
    decision.attempt_workers = replace(decision.attempt_workers, patience_seconds=0.0)
    start_if_possible(decision)


def _note_enough(decision: Decision) -> None:
    """Start the wait for the other workers when the run has its minimum."""
    state = decision.state
    is_new = state.activity == Activity.WAITING_FOR_WORKERS and TimerKind.SHRINK not in state.timers
    attempt_workers = state.attempt_workers
    if (
        is_new
        and attempt_workers.patience_seconds
        and worker_selection.has_least(state.run, attempt_workers.answering)
    ):
        decision.set_timer(TimerKind.SHRINK, decision.now + state.attempt_workers.patience_seconds)


def _find_usable(state: RunState) -> Mapping[str, Pod]:
    """Return the workers that answer, with broken GPUs only as far as the others are too few.

    While the attempt waits for expected workers, there may still be enough without broken ones.
    """
    run = state.run
    answering = state.attempt_workers.answering
    if not state.broken_pods:
        return answering
    usable = {name: pod for name, pod in answering.items() if pod not in state.broken_pods}
    if not _may_shrink(state):
        return usable
    lacking = Counter(worker_selection.count_lacking(run.least_workers, run, usable))
    for worker in run.workers:
        if (
            worker.name in answering
            and worker.name not in usable
            and lacking[worker.stateful_set] > 0
        ):
            lacking[worker.stateful_set] -= 1
            usable[worker.name] = answering[worker.name]
    return usable


def _orphan_fence(state: RunState) -> int:
    """Return the fence number of the orphaned launch; 0 if another one has begun."""
    return 0 if state.used_workers else state.orphan_fence


def _has_other_state(state: RunState) -> bool:
    """Return whether workers may have another run's state in memory.

    This run's ranks remove it, unless earlier ranks of this Job have. Without a record, other runs
    are unknown.
    """
    is_first = state.record_lock.is_held and not state.record_lock.data.get(RecordKey.RUN)
    return not (state.was_training or is_first)


def extend_deadline(decision: Decision) -> None:
    """Wait launch.workersTimeoutSeconds from now on for further workers."""
    until = decision.now + decision.state.run.workers_timeout_seconds
    decision.attempt_workers = replace(decision.attempt_workers, deadline=until)
    decision.set_timer(TimerKind.WORKERS, until)


def on_answer(decision: Decision, event: WorkerAnswers) -> None:
    """Note that a worker answers, and start if it was the last missing one."""
    attempt_workers = decision.attempt_workers
    reasons = {
        name: reason for name, reason in attempt_workers.reasons.items() if name != event.worker
    }
    answering = {**attempt_workers.answering, event.worker: event.pod}
    decision.attempt_workers = replace(
        decision.attempt_workers, answering=answering, reasons=reasons, all_workers_silent=False
    )
    if (
        decision.state.activity == Activity.WAITING_FOR_WORKERS
        and event.worker not in decision.attempt_workers.arrived
    ):
        # An autoscaler may bring one node after the other.
        arrived = decision.attempt_workers.arrived | {event.worker}
        decision.attempt_workers = replace(decision.attempt_workers, arrived=arrived)
        extend_deadline(decision)
    start_if_possible(decision)


def on_problem(decision: Decision, event: WorkerProblem) -> None:
    """Note that a worker does not answer.

    A worker that answered before is lost after a long silence.
    """
    limit = decision.state.lost_after_seconds
    reasons = decision.attempt_workers.reasons
    decision.attempt_workers = replace(
        decision.attempt_workers, reasons={**reasons, event.worker: event.why}
    )
    if event.why.is_stale and event.why != reasons.get(event.worker):
        list_pods(decision)
    if event.worker not in decision.attempt_workers.answering:
        return
    if event.silent >= limit and event.all_workers_silent:
        limit *= MASTER_OFFLINE_FACTOR
        if not decision.attempt_workers.all_workers_silent:
            why = "no worker responds: this pod may have lost the network"
            decision.log(f"{why}; waiting {limit:.0f} s")
        decision.attempt_workers = replace(decision.attempt_workers, all_workers_silent=True)
    if event.silent >= limit:
        _drop(decision, event.worker)


def on_gone(decision: Decision, event: WorkerGone) -> None:
    """Note that a worker no longer answers, because its pod ends or was replaced."""
    _drop(decision, event.worker)
    reasons = decision.attempt_workers.reasons
    decision.attempt_workers = replace(
        decision.attempt_workers,
        reasons={name: reason for name, reason in reasons.items() if name != event.worker},
    )


def _drop(decision: Decision, worker: str) -> None:
    answering = decision.attempt_workers.answering
    decision.attempt_workers = replace(
        decision.attempt_workers,
        answering={name: pod for name, pod in answering.items() if name != worker},
    )


def start_if_possible(decision: Decision) -> None:
    """Hand out the code as soon as enough workers answer and the launcher is prepared."""
    _note_enough(decision)
    state = decision.state
    is_waiting = (
        state.activity == Activity.WAITING_FOR_WORKERS
        and state.attempt.is_prepared
        and not state.is_terminating
    )
    if not is_waiting or not is_enough(decision):
        return
    run = state.run
    answering = state.attempt_workers.answering
    chosen = worker_selection.choose_workers(run, _find_usable(state), state.broken_pods)
    for name, pod in chosen.items():
        decision.log(
            f"worker {name} at {pod.address}, {state.assignment.workers[name].slots} slots"
        )
    spares = describe_spares(run, len(answering) - len(chosen))
    decision.report(RunEvent.WORKERS_READY, f"{len(chosen)} workers respond{spares}")
    decision.clear_timers(TimerKind.WORKERS, TimerKind.RESUME, TimerKind.SHRINK)
    if worker_selection.count_missing_workers(run, chosen):
        decision.add_effects(FreezeAddresses([*chosen]))
    else:
        # Another master may replace the workers while this one ends: this one must not do the same.
        # Also, a terminating pod still trains until its grace period is over.
        decision.clear_timers(TimerKind.PODS)
        decision.add_effects(FreezeAddresses())
    attempt = replace(decision.attempt, pods=chosen)
    decision.state = replace(decision.state, activity=Activity.DELIVERING, attempt=attempt)
    orphan_fence = _orphan_fence(decision.state)
    if orphan_fence:
        addresses = _find_addresses(decision)
        decision.add_effects(CountFinished(attempt.number, addresses, orphan_fence))
    else:
        _deliver(decision)


def on_finished_counted(decision: Decision, event: FinishedCounted) -> None:
    """End the run if all ranks of the orphaned launch have finished; otherwise continue it."""
    state = decision.state
    if state.activity != Activity.DELIVERING:
        return
    if event.number == sum(
        worker.slots for worker in parse_used_workers(state.run, state.recorded_workers)
    ):
        decision.log("all ranks have finished while there was no master")
        decision.add_event(AttemptOver(None))
    else:
        _deliver(decision)


def _deliver(decision: Decision) -> None:
    """Hand out the code to the chosen workers."""
    saves = _has_other_state(decision.state)
    attempt = decision.attempt
    decision.add_effects(Deliver(attempt.number, _find_addresses(decision), attempt.pods, saves))


def _find_addresses(decision: Decision) -> dict[str, str]:
    """Return the addresses of the workers that answer, and of the attempt's own pods."""
    pods = {**decision.attempt_workers.answering, **decision.attempt.pods}
    return {name: pod.address for name, pod in pods.items()}


def is_enough(decision: Decision) -> bool:
    """Return whether the attempt can start with the workers that answer.

    Until the timer "resume", wait for all workers whose ranks may have finished.
    """
    state = decision.state
    run = state.run
    usable = _find_usable(state)
    are_missing = len(state.attempt_workers.answering) < len(run.workers)
    is_waiting = TimerKind.RESUME in state.timers and are_missing
    may_start = _may_shrink(state) and worker_selection.has_least(run, usable)
    return not is_waiting and (may_start or not worker_selection.count_missing_workers(run, usable))


def _may_shrink(state: RunState) -> bool:
    """Return whether the attempt may start without missing workers, if it has enough others."""
    attempt_workers = state.attempt_workers
    is_complete = (
        attempt_workers.expected is not None
        and attempt_workers.expected <= attempt_workers.answering.keys()
    )
    return is_complete or not attempt_workers.patience_seconds


def list_pods(decision: Decision) -> None:
    """List the pods of missing workers, unless a list is already requested."""
    state = decision.state
    if not pod_replacement.may_replace_pods(state):
        return
    has_fewer = pod_replacement.trains_with_fewer(state)
    decision.set_timer(
        TimerKind.PODS,
        decision.now
        + (TRAINING_POD_POLL_INTERVAL_SECONDS if has_fewer else MISSING_POD_POLL_INTERVAL_SECONDS),
    )
    if state.attempt_workers.is_listing:
        return
    missing = []
    if state.activity == Activity.WAITING_FOR_WORKERS or has_fewer:
        missing = worker_selection.find_missing(state.run, state.attempt_workers.answering)
    reasons = state.attempt_workers.reasons.values()
    if not (missing or any(reason.is_stale for reason in reasons)):
        return
    if not state.run.has_api_access:
        _report_missing(decision, PodsListed(state.attempt.number))
        return
    decision.attempt_workers = replace(decision.attempt_workers, is_listing=True)
    decision.add_effects(ListPods(decision.attempt.number, [worker.name for worker in missing]))


def on_pods(decision: Decision, event: PodsListed) -> None:
    """Replace listed pods that are in the way, and explain missing or lost workers."""
    decision.attempt_workers = replace(decision.attempt_workers, is_listing=False)
    launch = decision.attempt.launch
    if launch and launch.lost:
        missing_workers.explain_loss(decision, event, launch.lost)
    if not pod_replacement.may_replace_pods(decision.state):
        return
    pod_replacement.replace_pods(decision, event.pods)
    if decision.state.activity == Activity.WAITING_FOR_WORKERS:
        _scale_up(decision, event)
        _report_missing(decision, event)


def _scale_up(decision: Decision, event: PodsListed) -> None:
    """Scale up the StatefulSets without the pods of missing workers.

    An attempt that expected to be the last one scaled them to 0, and then another attempt was made:
    after an eviction, which does not count as a failure, or a roll-back. Or the API server was
    unavailable when the attempt began. A run that ends or trains does not scale them: a suspension
    of the run may have removed the pods.
    """
    run = decision.state.run
    missing = worker_selection.find_missing(run, decision.attempt_workers.answering)
    absent = {worker.stateful_set for worker in missing if worker.name not in event.pods}
    if event.problem:
        return
    for name in sorted(absent):
        # A person may have chosen the number of workers, where it may change.
        decision.add_effects(ScaleUp(name, run.initial_workers[name], run.least_workers[name]))


def _report_missing(decision: Decision, event: PodsListed) -> None:
    """Report why workers are missing; wait longer for queued ones."""
    missing = worker_selection.find_missing(decision.state.run, decision.attempt_workers.answering)
    if not missing:
        return
    diagnoses = missing_workers.note_missing(decision, missing, event)
    if any(diagnosis.is_queued for diagnosis in diagnoses.values()):
        # launch.workersTimeoutSeconds begins when they are admitted, and have their data.
        extend_deadline(decision)
    missing_workers.report_missing(decision, diagnoses)


def time_out(decision: Decision) -> None:
    """Handle the end of the timeout for missing workers: fail with their reasons."""
    state = decision.state
    has_least = worker_selection.has_least(state.run, state.attempt_workers.answering)
    if state.activity == Activity.WAITING_FOR_WORKERS and has_least:
        lose_patience(decision)
        return
    if state.activity != Activity.WAITING_FOR_WORKERS or is_enough(decision):
        # If only the launcher is not prepared yet, its preparation has its own timeout.
        return
    missing = worker_selection.find_missing(state.run, state.attempt_workers.answering)
    workers = state.attempt_workers
    diagnoses = {
        worker: workers.diagnoses.get(worker.name)
        or Diagnosis(workers.reasons.get(worker.name, missing_workers.SILENT_WORKER).reason)
        for worker in missing
    }
    limit = f"`launch.workersTimeoutSeconds={state.run.workers_timeout_seconds:.0f}`"
    problem = f"did not answer within {limit}"
    decision.add_event(
        AttemptOver(
            missing_workers.make_missing_error(decision, diagnoses, problem, WorkersTimeoutError)
        )
    )
