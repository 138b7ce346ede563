"""How far a run has come from its deployment to its end, and what it waits for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hvdchart.run.pod_problems import problem_of, waits_for
from hvdchart.run.release import Object, Release, is_event_of
from hvdchart.run.status import newest_job, run_status
from hvdchart.text import join_names

QUEUED = "queued"
SCHEDULING = "scheduling"
PULLING = "pulling images"
STARTING = "starting"
HOSTS_READY = "hosts ready"
TRAINING = "training"
DONE = "done"
# The events with which the master reports its stage (hvd_pods/master).
_STAGES = {"HostsReady": HOSTS_READY, "Training": TRAINING, "Started": STARTING, "Failed": STARTING}


@dataclass(frozen=True)
class Phase:
    """A phase, and what it waits for; while it trains, the progress."""

    name: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}" if self.detail else self.name


def phase_of(release: Release) -> Phase:
    """The phase of the release's newest run, by its master's events or what its pods wait for.

    A release without a Job is queued.
    """
    status = run_status(release)
    if status.over:
        return Phase(DONE, f"{status.state}, {status.reason}" if status.reason else status.state)
    job = newest_job(release)
    if job is None:
        return Phase(QUEUED)
    if job["spec"].get("suspend"):
        return Phase(QUEUED, "the Job is suspended")
    stage = ""
    # The last event that the master has written about its Job counts.
    for event in release.events:
        if is_event_of(event, job):
            stage = _STAGES.get(event.get("reason", ""), stage)
    if stage == TRAINING:
        return Phase(TRAINING, status.progress.text() if status.progress else "")
    return _phase_of_pods(release, status.workers_wanted + 1) or Phase(stage or STARTING)


def _phase_of_pods(release: Release, wanted: int) -> Phase | None:
    """What pods are waited for; None when all are up. `wanted` counts workers and the master."""
    pods = release.pods
    gated = [pod for pod in pods if pod["spec"].get("schedulingGates")]
    if gated:
        problem = problem_of(gated[0], [])
        return Phase(QUEUED, problem.reason if problem else f"{len(gated)} pods have a gate")
    placed = [pod for pod in pods if pod["spec"].get("nodeName")]
    if len(placed) < wanted:
        return Phase(SCHEDULING, f"{len(placed)} of {wanted} pods have a node{_why(release)}")
    waiting = [pod for pod in placed if waits_for(pod)]
    if not waiting:
        return None
    pulling = [pod for pod in waiting if _is_pulling(pod, release.events)]
    names = join_names(sorted(pod["metadata"]["name"] for pod in pulling or waiting))
    return Phase(PULLING if pulling else STARTING, f"{names}{_why(release)}")


def _why(release: Release) -> str:
    """The first problem of a pod, and what to do about it; empty when no pod has one."""
    for pod in release.pods:
        problem = problem_of(pod, release.events)
        if problem:
            advice = f"; {problem.advice}" if problem.advice else ""
            return f"; {problem.reason}{advice}"
    return ""


def _is_pulling(pod: Object, events: Sequence[Object]) -> bool:
    """Whether the last event about a pod's image is that it is being pulled, or cannot be."""
    if "ImagePull" in waits_for(pod) or waits_for(pod) == "ErrImagePull":
        return True
    reasons = [event.get("reason") for event in events if is_event_of(event, pod)]
    return "Pulling" in reasons and "Pulled" not in reasons
