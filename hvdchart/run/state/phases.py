"""The progress of a run from its deployment to its end, and what it waits for. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hvd_pods.shared.run_events import RunEvent
from hvdchart.run.state.newest import NewestRun
from hvdchart.run.state.release import Object
from hvdchart.run.state.run_problems import waits_for
from hvdchart.run.state.status import Status
from hvdchart.text import join_names

QUEUED = "queued"
SCHEDULING = "scheduling"
PULLING = "pulling images"
STARTING = "starting"
WORKERS_READY = "workers ready"
TRAINING = "training"
DONE = "done"
# The phase that begins with an event of the master.
_PHASES = {
    RunEvent.WORKERS_READY.reason: WORKERS_READY,
    RunEvent.TRAINING.reason: TRAINING,
    RunEvent.STARTED.reason: STARTING,
    RunEvent.FAILED.reason: STARTING,
}


@dataclass(frozen=True)
class Phase:
    """A phase, and what it waits for; during training, the progress."""

    name: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}" if self.detail else self.name


def find_phase(run: NewestRun, status: Status) -> Phase:
    """Return the phase of a run of this status, by its master's events or by its pods.

    A release without a Job is queued.
    """
    if status.over:
        return Phase(DONE, f"{status.state}, {status.reason}" if status.reason else status.state)
    job = run.job
    if job is None:
        return Phase(QUEUED)
    if job["spec"].get("suspend"):
        return Phase(QUEUED, "the Job is suspended")
    name = ""
    # The last event of the master about its Job decides.
    for event in run.events_of(job):
        name = _PHASES.get(event.get("reason", ""), name)
    if name == TRAINING:
        return Phase(TRAINING, status.progress.text() if status.progress else "")
    return _phase_of_pods(run) or Phase(name or STARTING)


def _phase_of_pods(run: NewestRun) -> Phase | None:
    """Return the phase that waits for pods; None when all are up."""
    pods = run.training_pods
    # The workers, and the master.
    wanted = run.workers.wanted + 1
    gated = [pod for pod in pods if pod["spec"].get("schedulingGates")]
    if gated:
        problem = run.problem(gated[0])
        return Phase(QUEUED, problem.reason if problem else f"{len(gated)} pods have a gate")
    placed = [pod for pod in pods if pod["spec"].get("nodeName")]
    if len(placed) < wanted:
        return Phase(SCHEDULING, f"{len(placed)} of {wanted} pods have a node{_why(run)}")
    waiting = [pod for pod in placed if waits_for(pod)]
    if not waiting:
        return None
    pulling = [pod for pod in waiting if _is_pulling(pod, run)]
    names = join_names(sorted(pod["metadata"]["name"] for pod in pulling or waiting))
    return Phase(PULLING if pulling else STARTING, f"{names}{_why(run)}")


def _why(run: NewestRun) -> str:
    """Return the first problem of a pod, and what to do about it; empty without a problem."""
    for problem in filter(None, map(run.problem, run.training_pods)):
        ending = f"; {run.rephrase(problem.remedy)}" if problem.remedy else ""
        return f"; {problem.reason}{ending}"
    return ""


def _is_pulling(pod: Object, run: NewestRun) -> bool:
    """Return whether the last event about a pod's image is a pull in progress, or a failed pull."""
    if "ImagePull" in waits_for(pod) or waits_for(pod) == "ErrImagePull":
        return True
    reasons = [event.get("reason") for event in run.events_of(pod)]
    return "Pulling" in reasons and "Pulled" not in reasons
