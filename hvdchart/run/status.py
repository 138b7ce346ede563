"""A release's objects -> how its run is doing, and the reason that a person can act on. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from hvdchart.run.pod_problems import advice_for_refusal, problem_of, waits_for
from hvdchart.run.release import Object, Release

State: TypeAlias = Literal[
    "not found", "suspended", "waiting", "running", "retrying", "finished", "failed"
]
_MASTER = "master"
# Warnings that the controllers of a Job and a StatefulSet leave when a pod is refused.
_REFUSED = ("FailedCreate",)


@dataclass(frozen=True)
class PodStatus:
    """One pod, as a line of a table: `state` is in Kubernetes' own words."""

    name: str
    state: str
    node: str
    restarts: int
    problem: str


@dataclass(frozen=True)
class Status:
    """A run: its state, why, and what to do about it; empty text where there is nothing to say.

    `attempt` counts from 1 and `attempts` is how many there may be; 0 when there is no Job.
    """

    name: str
    state: State
    reason: str
    advice: str
    job: str
    attempt: int
    attempts: int
    workers_ready: int
    workers_wanted: int
    pods: tuple[PodStatus, ...]

    @property
    def over(self) -> bool:
        """Whether the run has ended, well or not."""
        return self.state in ("finished", "failed")

    def document(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self)


def status_of(release: Release) -> Status:
    """The state of a release's newest run."""
    job = newest_job(release)
    pods = [pod for pod in release.pods if job is None or not _is_of_another_job(pod, job)]
    wanted = sum(int(s["spec"].get("replicas", 0)) for s in release.stateful_sets)
    ready = sum(1 for pod in pods if _component(pod) != _MASTER and _is_ready(pod))
    state, reason, advice = _judged(release, job, pods, ready, wanted)
    failed = int((job or {}).get("status", {}).get("failed", 0))
    limit = int(job["spec"].get("backoffLimit", 6)) if job else -1
    return Status(
        name=release.name,
        state=state,
        reason=reason,
        advice=advice,
        job=job["metadata"]["name"] if job else "",
        attempt=min(failed + 1, limit + 1) if job else 0,
        attempts=limit + 1,
        workers_ready=ready,
        workers_wanted=wanted,
        pods=tuple(_pod(pod, release) for pod in sorted(pods, key=_by_name)),
    )


def newest_job(release: Release) -> Object | None:
    """The Job of the newest run; an upgrade deletes the older one, which may take a moment."""
    kept = [job for job in release.jobs if "deletionTimestamp" not in job["metadata"]]
    return max(kept, key=lambda job: str(job["metadata"]["creationTimestamp"]), default=None)


Judgement: TypeAlias = tuple[State, str, str]


def _judged(
    release: Release, job: Object | None, pods: list[Object], ready: int, wanted: int
) -> Judgement:
    if job is None:
        if not release.found:
            why = "nothing in this namespace carries the release's name"
            return "not found", why, "helm list --all-namespaces shows releases"
        return _ended_before(release)
    conditions = {c["type"]: c for c in job.get("status", {}).get("conditions") or []}
    masters = [pod for pod in pods if _component(pod) == _MASTER]
    if _holds(conditions, "Complete"):
        return "finished", "", ""
    if _holds(conditions, "Failed"):
        return _failed(conditions["Failed"], masters, pods, release)
    if job["spec"].get("suspend"):
        return "suspended", "master.suspend is true", "set it to false and deploy again"
    reason, advice = _first_problem(release, job, pods)
    if reason:
        return "waiting", reason, advice
    last = _last_failure(masters)
    if last and not any(pod.get("status", {}).get("phase") == "Running" for pod in masters):
        return "retrying", f"the last attempt failed: {last}", ""
    if ready < wanted or not masters:
        return "waiting", _progress(pods, ready, wanted), ""
    if last:
        return "running", f"an earlier attempt failed: {last}", ""
    return "running", "", ""


def _ended_before(release: Release) -> Judgement:
    """The Job is gone: by its time to live, or by hand."""
    record = release.record
    if record.get("state") == "Finished":
        return "finished", "", ""
    if record.get("state") == "Failed":
        return "failed", record.get("reason", ""), ""
    return "not found", "its Job is gone", "deploy it again for a new run"


def _failed(
    condition: Object, masters: list[Object], pods: list[Object], release: Release
) -> Judgement:
    said = _last_failure(masters)
    advice = ""
    if condition.get("reason") == "DeadlineExceeded":
        said = f"{condition.get('message', '')}; {said}".strip("; ")
        advice = "raise master.activeDeadlineSeconds (train.deadlineSeconds in a spec)"
    for pod in pods:
        found = problem_of(pod, release.events)
        if found and _component(pod) != _MASTER:
            said = f"{said}; {pod['metadata']['name']}: {found.reason}".strip("; ")
            advice = advice or found.advice
            break
    return "failed", said or str(condition.get("message", "")), advice


def _first_problem(release: Release, job: Object, pods: list[Object]) -> tuple[str, str]:
    """What keeps pods from running, alike ones told once."""
    problems: dict[str, list[str]] = {}
    advices: dict[str, str] = {}
    # First: pods that are there may be an earlier run's, which nobody replaces without a master.
    for owner, reason in _refusals(release, job, pods):
        problems.setdefault(reason, []).append(owner)
        advices.setdefault(reason, advice_for_refusal(reason))
    for pod in pods:
        found = problem_of(pod, release.events)
        if found and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            problems.setdefault(found.reason, []).append(pod["metadata"]["name"])
            advices[found.reason] = found.advice
    told = [f"{_names(names)}: {reason}" for reason, names in problems.items()]
    return "; ".join(told), next(iter(advices.values()), "")


def _refusals(release: Release, job: Object, pods: list[Object]) -> Iterator[tuple[str, str]]:
    """Pods that were never made: quota, Pod Security, an admission webhook."""
    owners = [job, *release.stateful_sets]
    for owner in owners:
        name = owner["metadata"]["name"]
        if any(_is_child(pod, name) for pod in pods):
            continue
        for event in reversed(release.events):
            if event.get("reason") in _REFUSED and event["involvedObject"].get("name") == name:
                yield name, f"no pod could be made: {event.get('message', '')}"
                break


def _last_failure(masters: list[Object]) -> str:
    """What the last failed attempt left as its termination message, else its exit code."""
    ended = [
        (str(state.get("finishedAt", "")), _terminated_text(state))
        for pod in masters
        for state in _terminated(pod)
        if state.get("exitCode")
    ]
    evicted = [
        ("", f"{pod['status'].get('reason', '')}: {pod['status'].get('message', '')}".strip(": "))
        for pod in masters
        if pod.get("status", {}).get("phase") == "Failed" and not list(_terminated(pod))
    ]
    return max(ended or evicted, default=("", ""))[1]


def _terminated(pod: Object) -> Iterator[Object]:
    for container in pod.get("status", {}).get("containerStatuses") or []:
        for state in (container.get("lastState"), container.get("state")):
            if state and "terminated" in state:
                yield state["terminated"]


def _terminated_text(state: Object) -> str:
    if state.get("reason") == "OOMKilled":
        return "the master was killed for memory: raise master.resources.limits.memory"
    message = str(state.get("message") or "").strip()
    return message or f"the master ended with exit code {state.get('exitCode')}"


def _progress(pods: list[Object], ready: int, wanted: int) -> str:
    """What the pods that are not up are doing, when nothing is wrong with them."""
    doing: dict[str, list[str]] = {}
    for pod in pods:
        what = waits_for(pod)
        if what:
            doing.setdefault(what, []).append(pod["metadata"]["name"])
    told = "; ".join(f"{_names(names)}: {what}" for what, names in doing.items())
    return f"{ready} of {wanted} workers are up" + (f"; {told}" if told else "")


def _names(names: list[str], limit: int = 3) -> str:
    found = sorted(names)
    more = f" and {len(found) - limit} more" if len(found) > limit else ""
    return ", ".join(found[:limit]) + more


def _pod(pod: Object, release: Release) -> PodStatus:
    status = pod.get("status", {})
    found = problem_of(pod, release.events)
    restarts = sum(int(c.get("restartCount", 0)) for c in status.get("containerStatuses") or [])
    gone = "deletionTimestamp" in pod["metadata"]
    state = "Terminating" if gone else waits_for(pod) or str(status.get("phase", "Unknown"))
    node = str(pod.get("spec", {}).get("nodeName") or "")
    return PodStatus(pod["metadata"]["name"], state, node, restarts, found.reason if found else "")


def _component(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get("app.kubernetes.io/component", ""))


def _is_of_another_job(pod: Object, job: Object) -> bool:
    labels = pod["metadata"].get("labels") or {}
    owner = labels.get("batch.kubernetes.io/job-name")
    return owner is not None and owner != job["metadata"]["name"]


def _is_child(pod: Object, owner: str) -> bool:
    owners = pod["metadata"].get("ownerReferences") or []
    return any(reference.get("name") == owner for reference in owners)


def _is_ready(pod: Object) -> bool:
    return _holds({c["type"]: c for c in pod.get("status", {}).get("conditions") or []}, "Ready")


def _holds(conditions: dict[str, Object], kind: str) -> bool:
    return conditions.get(kind, {}).get("status") == "True"


def _by_name(pod: Object) -> tuple[str, int, str]:
    name = str(pod["metadata"]["name"])
    start, _, ordinal = name.rpartition("-")
    return (start, int(ordinal), "") if ordinal.isdecimal() else (name, 0, name)
