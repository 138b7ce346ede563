"""Judges a run: its state, the reason for it and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hvd_pods.shared.record import FAILED, FINISHED, LEASE_KEPT, RecordKey
from hvdchart.run.state.newest import NewestRun
from hvdchart.run.state.release import Object, Release, component_of, condition_of, is_child
from hvdchart.run.state.run_problems import remedy_for_refusal, waits_for
from hvdchart.run.state.status import State
from hvdchart.text import join_names

# The reason of the event that a Job or StatefulSet controller writes when a pod is refused.
_POD_REFUSED = "FailedCreate"


class Judgement(NamedTuple):
    """The state of a run, the reason for it, and what to do; texts may be empty."""

    state: State
    reason: str
    remedy: str = ""


def judge_run(run: NewestRun) -> Judgement:
    """Return the state of a run with its reason and remedy."""
    job = run.job
    record = run.record
    if job is None:
        return _judge_without_job(run)
    if condition_of(job, "Complete"):
        return Judgement("finished", _what_lacks(run.release))
    failed = condition_of(job, "Failed")
    if failed:
        return _explain_failure(failed, run)
    is_kept = record.get(RecordKey.LEASE) == LEASE_KEPT
    if is_kept and record.get(RecordKey.STATE) == FINISHED:
        return Judgement("finished", _what_lacks(run.release))
    if is_kept and record.get(RecordKey.STATE) == FAILED:
        return Judgement("failed", record.get(RecordKey.REASON, ""))
    again = f"hvdchart restart {run.release.name} -n {job['metadata'].get('namespace', 'default')}"
    if job["spec"].get("suspend"):
        return Judgement("suspended", "the run is stopped", f"continue it: {again}")
    if record.get(RecordKey.STATE) in (FINISHED, FAILED):
        # The master scales down the workers, which are no longer needed.
        return Judgement("finishing", record.get(RecordKey.REASON, ""))
    if not run.release.stateful_sets:
        reason = "the StatefulSets of the run's workers were deleted"
        return Judgement("waiting", reason, f"create them again: {again}")
    return _judge_by_pods(run, job)


def is_stuck(run: NewestRun) -> bool:
    """Return whether no master of a waiting run can start until a user intervenes."""
    problems = [run.problem(pod) for pod in run.masters]
    return bool(problems) and all(problem and problem.is_permanent for problem in problems)


def _judge_without_job(run: NewestRun) -> Judgement:
    if not run.release.exists:
        reason = "this namespace has no objects of the release"
        return Judgement(
            "not found", reason, "list the runs: hvdchart list, also with --all-namespaces"
        )
    # The Job's time to live, or a user, deleted the Job.
    if run.record.get(RecordKey.STATE) == FINISHED:
        return Judgement("finished", _what_lacks(run.release))
    if run.record.get(RecordKey.STATE) == FAILED:
        return Judgement("failed", run.record.get(RecordKey.REASON, ""))
    if run.record.get(RecordKey.JOB):
        remedy = "deploy it again to start a new run"
        return Judgement("not found", "the run's Job was deleted", remedy)
    remedy = "deploy it again, or remove what is there"
    return Judgement("not found", _why_no_job(run.release), remedy)


def _judge_by_pods(run: NewestRun, job: Object) -> Judgement:
    """Return the state of a run by its pods, if its Job and its record do not decide it."""
    workers = run.workers
    needed = [pod for pod in run.training_pods if pod not in workers.dispensable]
    reason, remedy = _problems(run, needed, _refusals(run, job, needed))
    if reason:
        return Judgement("waiting", reason, remedy)
    last = run.record.get(RecordKey.REASON) or run.last_failure
    if last and not any(pod.get("status", {}).get("phase") == "Running" for pod in run.masters):
        return Judgement("retrying", f"the last attempt failed: {last}")
    if not workers.are_enough or not run.masters:
        waiting: dict[str, list[str]] = {}
        for pod in needed:
            reason = waits_for(pod)
            if reason:
                waiting.setdefault(reason, []).append(pod["metadata"]["name"])
        reason = f"{workers.ready} of {workers.wanted} workers are up"
        if waiting:
            reason += f"; {_group_names(waiting)}"
        return Judgement("waiting", reason)
    leaving = _leaving_master(run)
    if leaving:
        return leaving
    # Neither spares that are not ready nor TensorBoard block the training.
    names = {pod["metadata"]["name"] for pod in needed}
    others = [pod for pod in run.pods if pod["metadata"]["name"] not in names]
    beside, remedy = _problems(run, others)
    reasons = []
    if workers.used and workers.used < workers.wanted:
        reasons.append(f"it trains on {workers.used} of {workers.wanted} workers")
    if last:
        reasons.append(f"an earlier attempt failed: {last}")
    if beside:
        reasons.append(beside)
    return Judgement("running", "; ".join(reasons), remedy)


def _leaving_master(run: NewestRun) -> Judgement | None:
    """Return that the run's last master is evicted and has not ended; None in any other case.

    The Job controller creates another master when this one has ended. On a node without power or
    network, no kubelet ends it.
    """
    for pod in run.masters:
        is_leaving = "deletionTimestamp" in pod["metadata"]
        if not is_leaving or not condition_of(pod, "DisruptionTarget"):
            return None
    name = run.masters[-1]["metadata"]["name"]
    node = run.masters[-1]["spec"].get("nodeName", "")
    return Judgement(
        "waiting",
        f"{name} is evicted from node {node}; another master starts when it has ended",
        f"if the node has failed and stays so, remove its pods: kubectl taint nodes {node} "
        "node.kubernetes.io/out-of-service=failed:NoExecute",
    )


def _why_no_job(release: Release) -> str:
    """Explain why a release has no Job although no master has ever written its record."""
    for event in release.events:
        about = event.get("involvedObject", {})
        if about.get("kind") == "Job" and event.get("reason") == "SuccessfulCreate":
            return "the run's Job was deleted before its master began"
    return (
        "the run has no Job, so that no master starts it or ends its workers: the API server may "
        "have refused the Job, as a quota or a webhook does"
    )


def _what_lacks(release: Release) -> str:
    """Explain why a finished run has no workers; empty if there is no problem."""
    note = release.record.get(RecordKey.LEASE, "")
    return "" if note in ("", LEASE_KEPT) else f"its workers were removed: {note}"


def _explain_failure(condition: Object, run: NewestRun) -> Judgement:
    """Explain why a run failed: the last master's message, the time limit or a worker."""
    reason = run.last_failure
    remedy = ""
    if condition.get("reason") == "DeadlineExceeded":
        reason = f"{condition.get('message', '')}; {reason}".strip("; ")
        remedy = "raise `master.activeDeadlineSeconds` (train.activeDeadlineSeconds in a spec)"
    for pod in run.training_pods:
        problem = run.problem(pod)
        if problem and component_of(pod) != "master":
            reason = f"{reason}; {pod['metadata']['name']}: {problem.reason}".strip("; ")
            remedy = remedy or problem.remedy
            break
    return Judgement("failed", reason or str(condition.get("message", "")), remedy)


def _problems(
    run: NewestRun, pods: Sequence[Object], refusals: Iterable[tuple[str, str]] = ()
) -> tuple[str, str]:
    """Return what keeps pods from running, each reason once with its pods, and its remedy."""
    problems: dict[str, list[str]] = {}
    remedies: dict[str, str] = {}
    # Refusals come first: without a master, the present pods may belong to an earlier run.
    for owner, reason in refusals:
        problems.setdefault(reason, []).append(owner)
        remedies.setdefault(reason, remedy_for_refusal(reason))
    for pod in pods:
        problem = run.problem(pod)
        if problem and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            problems.setdefault(problem.reason, []).append(pod["metadata"]["name"])
            remedies[problem.reason] = problem.remedy
    return _group_names(problems), "; ".join(dict.fromkeys(filter(None, remedies.values())))


def _refusals(run: NewestRun, job: Object, pods: list[Object]) -> Iterator[tuple[str, str]]:
    """Yield owners whose pods the API server refuses, and why: quota, Pod Security, a webhook."""
    for owner in [job, *run.release.stateful_sets]:
        name = owner["metadata"]["name"]
        if any(is_child(pod, name) for pod in pods):
            continue
        refused = [event for event in run.events_of(owner) if event.get("reason") == _POD_REFUSED]
        if refused:
            yield name, f"cannot create a pod: {refused[-1].get('message', '')}"


def _group_names(names: dict[str, list[str]]) -> str:
    """Group workers by their problem: hvd-worker-0, hvd-worker-1: Pending."""
    return "; ".join(f"{join_names(sorted(pods))}: {reason}" for reason, pods in names.items())
