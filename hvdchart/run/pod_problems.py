"""One pod and the events about it -> what is wrong with it, and what a person can do about it.

The known reasons and their remedies are those of the master (hvd_pods.common.pod_problems). The
master asks whether a worker will come; this module explains every pod of a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from hvd_pods.common.hostile import one_line
from hvd_pods.common.pod_problems import diagnose_gate, find_known_problem
from hvdchart.run.release import Object, is_event_of

# Longer messages repeat themselves; the first part says what happened.
_short = partial(one_line, longest=300)
_SCHEDULER = "default-scheduler"
_HEALTHY_WAITS = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True)
class Problem:
    """What is wrong with a pod, and what a person can do about it; `advice` may be empty."""

    reason: str
    advice: str


def problem_of(pod: Object, events: list[Object]) -> Problem | None:
    """What keeps a pod from doing its work; None while nothing does. Events come oldest first."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or []:
        if condition.get("reason") == "Unschedulable" and condition["status"] == "False":
            message = _short(condition.get("message", ""))
            known = find_known_problem("scheduling", message) or {"remedy": ""}
            return Problem(f"cannot be scheduled: {message}", known["remedy"])
        if condition.get("reason") == "SchedulingGated" and condition["status"] == "False":
            return Problem(
                diagnose_gate(pod).reason,
                "wait until the queue has room: with Kueue, see kubectl describe workloads",
            )
    scheduler = pod.get("spec", {}).get("schedulerName", _SCHEDULER)
    kinds = {condition.get("type") for condition in status.get("conditions") or []}
    is_unseen = status.get("phase") == "Pending" and "PodScheduled" not in kinds
    if scheduler != _SCHEDULER and is_unseen:
        return Problem(
            f"scheduler {scheduler!r} has not processed the pod",
            "check that it is installed and running, or correct schedulerName or gang",
        )
    if status.get("phase") == "Failed" and status.get("reason"):
        text = f"{status['reason']}: {status.get('message', '')}"
        return Problem(
            _short(text),
            "the node may have run out of memory, disk or process IDs: see kubectl describe node",
        )
    for container in _containers(pod):
        problem = _container_problem(container)
        if problem:
            return problem
    if waits_for(pod) in _HEALTHY_WAITS:
        return _stuck(pod, events)
    return None


def advice_for_refusal(message: str) -> str:
    """What to do when the API server refuses to create a pod."""
    known = find_known_problem("refusal", message)
    return known["remedy"] if known else "the message names the rule: change the values or the rule"


def waits_for(pod: Object) -> str:
    """Kubernetes' word for what a pod waits for, such as ErrImagePull; empty when it is up."""
    for container in _containers(pod):
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return str(waiting.get("reason") or "Waiting")
    return "Pending" if pod.get("status", {}).get("phase") == "Pending" else ""


def _container_problem(container: Object) -> Problem | None:
    """What is wrong with a container by its status; None for one that runs, or that is created."""
    state = container.get("state") or {}
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    waiting = state.get("waiting") or {}
    if ended.get("reason") == "OOMKilled":
        return Problem("killed for memory (OOMKilled)", "raise memory in its resources")
    told = str(ended.get("message") or "")
    known = find_known_problem("exit", told) if told else None
    if known:
        return Problem(f"container {container['name']} cannot run: {_short(told)}", known["remedy"])
    reason = str(waiting.get("reason", ""))
    known = find_known_problem("container", reason)
    if known is None:
        return None
    message = _short(str(waiting.get("message", "")))
    if "ImagePull" in reason:
        known = find_known_problem("image", message) or known
    if reason == "CrashLoopBackOff" and ended:
        message = f"it ended with exit code {ended.get('exitCode')}"
        if ended.get("message"):
            message += f": {_short(str(ended['message']))}"
    # Some messages name the image and some do not.
    image = str(container.get("image", ""))
    named = f" of image {image}" if "Image" in reason and image not in message else ""
    text = f"{reason}{named}: {message}".rstrip(": ")
    return Problem(text, known["remedy"])


def _stuck(pod: Object, events: list[Object]) -> Problem | None:
    """A known problem in the warnings at the end of a pod's events; None where there is none."""
    for event in reversed(events):
        if not is_event_of(event, pod):
            continue
        if event.get("type") != "Warning":
            # What the warnings before it were about is over.
            return None
        known = find_known_problem("event", str(event.get("reason", "")))
        if known:
            message = _short(str(event.get("message", "")))
            return Problem(f"{event['reason']}: {message}", known["remedy"])
    return None


def _containers(pod: Object) -> Iterator[Object]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []
