"""Rules of the workers that an attempt lacks: why they are missing or lost, and what to do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Collection, Mapping, Sequence

from hvd_pods.rules import pod_replacement, worker_selection
from hvd_pods.rules.decision import Decision
from hvd_pods.rules.effects import ListPods
from hvd_pods.rules.events import AttemptOver, PodsListed
from hvd_pods.rules.worker_names import describe_loss, describe_reasons
from hvd_pods.shared import pod_problems
from hvd_pods.shared.errors import ConfigurationError, LostWorkerError, RunError
from hvd_pods.shared.no_answer import STALE, NoAnswer
from hvd_pods.shared.pod_problems import Diagnosis
from hvd_pods.shared.run import Run, Worker
from hvd_pods.shared.run_events import RunEvent

# An unchanged report is repeated after this many seconds, to show that the master still waits.
REPORT_REPEAT_INTERVAL_SECONDS = 60.0
# Seconds to wait for a deleted Service, whose pods have no addresses then, and for a StatefulSet
# that was deleted or creates pods of another revision: somebody may be repairing it.
REPAIR_TIMEOUT_SECONDS = 60.0
AGAIN = "with the values of the release: helm upgrade, or hvdchart restart"
SILENT_WORKER = NoAnswer("it has not responded yet")


def diagnose(
    decision: Decision, workers: Sequence[Worker], event: PodsListed
) -> dict[Worker, Diagnosis]:
    """Explain why each of these workers is missing or lost."""
    reasons = decision.attempt_workers.reasons
    diagnoses = {}
    for worker in workers:
        no_answer = reasons.get(worker.name, SILENT_WORKER)
        pod = event.pods.get(worker.name)
        is_wrong = pod is None or pod_replacement.is_stale(worker, pod)
        if event.problem:
            diagnoses[worker] = Diagnosis(f"{no_answer.reason}; cannot read pods: {event.problem}")
        elif not decision.state.run.has_api_access:
            diagnoses[worker] = Diagnosis(no_answer.reason)
        elif worker.stateful_set in event.gone:
            diagnoses[worker] = _diagnose_broken(worker, "was deleted", f"create it again {AGAIN}")
        elif is_wrong and pod_replacement.makes_stale_pods(decision, worker, pod):
            problem = f"makes pods {STALE}, as after kubectl rollout undo"
            diagnoses[worker] = _diagnose_broken(worker, problem, f"change it back {AGAIN}")
        elif pod is None:
            diagnoses[worker] = pod_problems.diagnose_refusal(
                event.refusals.get(worker.stateful_set, "")
            )
        elif is_wrong:
            diagnoses[worker] = Diagnosis(STALE)
        else:
            diagnosis = pod_problems.diagnose(pod)
            # Omit the reason of the probe for a container that does not run: it cannot listen.
            if diagnosis.wait_seconds is None:
                diagnosis = diagnosis._replace(reason=f"{diagnosis.reason}; {no_answer.reason}")
            is_known = diagnosis.is_queued or diagnosis.wait_seconds is not None
            # A run that has trained had slices. Before that, their controller may be slow.
            if no_answer.lacks_service and decision.state.was_training and not is_known:
                remedy = "create the deleted Service again: helm upgrade, with the same values"
                diagnosis = diagnosis._replace(remedy=remedy, wait_seconds=REPAIR_TIMEOUT_SECONDS)
            diagnoses[worker] = diagnosis
    return diagnoses


def _diagnose_broken(worker: Worker, problem: str, remedy: str) -> Diagnosis:
    """Return a problem that lasts until somebody repairs the worker's StatefulSet."""
    reason = f"the StatefulSet {worker.stateful_set} {problem}"
    return Diagnosis(reason, is_permanent=True, remedy=remedy, wait_seconds=REPAIR_TIMEOUT_SECONDS)


def note_missing(
    decision: Decision, missing: Sequence[Worker], event: PodsListed
) -> Mapping[Worker, Diagnosis]:
    """Note why these workers are missing, and when each lasting problem began."""
    attempt_workers = decision.attempt_workers
    diagnoses = diagnose(decision, missing, event)
    since = {
        worker.name: attempt_workers.since.get(worker.name, decision.now)
        for worker, diagnosis in diagnoses.items()
        if diagnosis.wait_seconds is not None
    }
    decision.attempt_workers = replace(
        decision.attempt_workers,
        diagnoses={worker.name: diagnosis for worker, diagnosis in diagnoses.items()},
        since=since,
    )
    return diagnoses


def report_missing(decision: Decision, diagnoses: Mapping[Worker, Diagnosis]) -> None:
    """Log why workers are missing, and fail the attempt for a problem that lasts."""
    attempt_workers = decision.attempt_workers
    number = _count_missing(decision, list(diagnoses))
    text = f"waiting for {number}: {'; '.join(_describe(diagnoses))}"
    if (
        text != attempt_workers.report
        or decision.now - attempt_workers.reported_at > REPORT_REPEAT_INTERVAL_SECONDS
    ):
        decision.log(f"{text} ({decision.attempt_workers.deadline - decision.now:.0f} s left)")
        decision.attempt_workers = replace(
            decision.attempt_workers, report=text, reported_at=decision.now
        )
    stuck = {
        worker: diagnosis
        for worker, diagnosis in diagnoses.items()
        if diagnosis.wait_seconds is not None
    }
    reasons = {diagnosis.reason for diagnosis in stuck.values()}
    announced = decision.attempt_workers.announced
    if reasons - announced:
        decision.attempt_workers = replace(decision.attempt_workers, announced=announced | reasons)
        text = "; ".join([*_describe(stuck), *_remedies(stuck)])
        decision.report(RunEvent.WORKERS_MISSING, text)
    lasting = [
        worker
        for worker, diagnosis in stuck.items()
        if decision.now - decision.attempt_workers.since[worker.name]
        >= (diagnosis.wait_seconds or 0.0)
    ]
    if _is_too_few(decision.state.run, lasting):
        decision.add_event(
            AttemptOver(make_missing_error(decision, diagnoses, "cannot start", RunError))
        )


def _is_too_few(run: Run, lasting: Collection[Worker]) -> bool:
    """Return whether lasting problems leave a group with fewer workers than its minimum."""
    problems = Counter(worker.stateful_set for worker in lasting)
    return any(
        problems[name] > run.initial_workers[name] - run.least_workers[name]
        for name in run.stateful_sets
    )


def _count_missing(decision: Decision, missing: Sequence[Worker]) -> str:
    """Report how many of the workers to start with are missing: spares may replace them."""
    run = decision.state.run
    needed = sum(run.needed_workers.values())
    lacking = sum(
        worker_selection.count_missing_workers(run, decision.attempt_workers.answering).values()
    )
    return f"{min(lacking, len(missing))} of {needed} workers"


def make_missing_error(
    decision: Decision, diagnoses: Mapping[Worker, Diagnosis], problem: str, kind: type[RunError]
) -> RunError:
    """Return the error of an attempt without these workers: `kind`, unless no attempt can help."""
    reasons = "; ".join([*_describe(diagnoses), *_remedies(diagnoses)])
    text = f"{_count_missing(decision, list(diagnoses))} {problem}: {reasons}"
    if any(diagnosis.is_permanent for diagnosis in diagnoses.values()):
        return ConfigurationError(text)
    return kind(text)


def _describe(diagnoses: Mapping[Worker, Diagnosis]) -> list[str]:
    """Return a line for each reason, with its workers."""
    return describe_reasons({worker: diagnosis.reason for worker, diagnosis in diagnoses.items()})


def _remedies(diagnoses: Mapping[Worker, Diagnosis]) -> list[str]:
    """Return a line for each remedy, in the order of the workers."""
    remedies = dict.fromkeys(
        diagnosis.remedy for diagnosis in diagnoses.values() if diagnosis.remedy
    )
    return [f"what to do: {remedy}" for remedy in remedies]


def find_silent(decision: Decision) -> dict[Worker, str]:
    """Return the workers of the launch that do not answer at this moment, and why."""
    attempt = decision.attempt
    workers = decision.state.assignment.workers
    used = attempt.launch.workers if attempt.launch else ()
    answering = attempt.workers.answering
    reasons = attempt.workers.reasons
    return {
        workers[name]: reasons.get(name, SILENT_WORKER).reason
        for name in used
        if name in reasons or name not in answering
    }


def announce_loss(decision: Decision, lost: Mapping[Worker, str]) -> LostWorkerError:
    """List the pods of lost workers, to explain the loss. Return the attempt's problem."""
    names = [worker.name for worker in lost]
    decision.launch = replace(decision.launch, lost=tuple(names))
    if decision.state.run.has_api_access:
        decision.add_effects(ListPods(decision.attempt.number, names))
    else:
        explain_loss(decision, PodsListed(decision.attempt.number), names)
    return LostWorkerError(describe_loss(lost), 1)


def explain_loss(decision: Decision, event: PodsListed, lost: Sequence[str]) -> None:
    """Log which workers were lost, and the state of their pods."""
    workers = [decision.state.assignment.workers[name] for name in lost]
    text = f"lost {'; '.join(_describe(diagnose(decision, workers, event)))}"
    decision.log(f"{text}: ending this attempt")
    decision.report(RunEvent.WORKER_LOST, text)
    decision.launch = replace(decision.launch, lost=())
