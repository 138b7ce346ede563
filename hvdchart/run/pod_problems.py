"""One pod and the events about it -> what is wrong with it, and the way out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hvdchart.run.release import Object

# Longer messages repeat themselves; the first part says what happened.
_LONGEST = 300
_IMAGE = "check image.repository, image.tag and imagePullSecrets"
_CONTAINER = {
    "ErrImagePull": _IMAGE,
    "ImagePullBackOff": _IMAGE,
    "InvalidImageName": _IMAGE,
    "ErrImageNeverPull": "load the image onto the node, or let image.pullPolicy be IfNotPresent",
    "CreateContainerConfigError": "make the Secret or ConfigMap that it names, or correct the name",
    "CreateContainerError": "the message is the container runtime's",
    "RunContainerError": "the image lacks what the chart runs: Python 3 on PATH",
    "CrashLoopBackOff": "its log says why it ends: hvdchart logs",
}
_SCHEDULING = (
    ("Insufficient", "ask for less, or `hvdchart discover --fit N` shows what is free"),
    ("didn't match Pod's node affinity/selector", "no node has the labels of nodeSelector"),
    ("untolerated taint", "add the taint to tolerations"),
    ("didn't match pod topology spread", "fewer nodes than workers: lower worker.number"),
    ("didn't match pod anti-affinity", "fewer nodes than workers: lower worker.number"),
    ("persistentvolumeclaim", "make the claim in this namespace, or correct its name"),
    ("PersistentVolumeClaims", "the claim waits for its volume: kubectl describe pvc"),
)
_NEVER_MADE = (
    ("no PriorityClass", "an administrator makes the class, or correct priorityClassName"),
    ("RuntimeClass", "an administrator makes the class, or correct worker.runtimeClassName"),
    ("exceeded quota", "ask for less, or have the namespace's ResourceQuota raised"),
    ("violates PodSecurity", "it names the fields: change them, or the namespace's level"),
)
_STUCK = {
    "FailedMount": "check the volume: does the directory, claim, server or Secret exist?",
    "FailedAttachVolume": "the volume may be attached to another node",
    "FailedCreatePodSandBox": "the node's network or runtime is unwell: kubectl describe node",
    "FailedMapVolume": "check the volume",
}
_SCHEDULER = "default-scheduler"
_HEALTHY_WAITS = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True)
class Problem:
    """What is wrong with a pod, and what a person can do about it."""

    reason: str
    advice: str


def problem_of(pod: Object, events: list[Object]) -> Problem | None:
    """What keeps a pod from doing its work; None while nothing does. Events come oldest first."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or []:
        if condition.get("reason") == "Unschedulable" and condition["status"] == "False":
            message = _short(condition.get("message", ""))
            return Problem(f"no node takes it: {message}", _scheduling_advice(message))
    scheduler = pod.get("spec", {}).get("schedulerName", _SCHEDULER)
    if scheduler != _SCHEDULER and _is_unseen(status):
        return Problem(
            f"no scheduler named {scheduler!r} has looked at it",
            "is it installed and running? Else correct schedulerName or gang",
        )
    if status.get("phase") == "Failed" and status.get("reason"):
        text = f"{status['reason']}: {status.get('message', '')}"
        return Problem(_short(text), "the node was short of something: kubectl describe node")
    for container in _containers(pod):
        found = _container_problem(container)
        if found:
            return found
    if waits_for(pod) in _HEALTHY_WAITS:
        return _stuck(pod, events)
    return None


def advice_for_refusal(message: str) -> str:
    """The way out when the API server refuses to make a pod."""
    known = (advice for sign, advice in _NEVER_MADE if sign in message)
    return next(known, "the message names the rule: change the values or the rule")


def waits_for(pod: Object) -> str:
    """Kubernetes' word for what a pod that is not up waits for; empty for one that is."""
    for container in _containers(pod):
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return str(waiting.get("reason") or "Waiting")
    return "Pending" if pod.get("status", {}).get("phase") == "Pending" else ""


def _is_unseen(status: Object) -> bool:
    kinds = {condition.get("type") for condition in status.get("conditions") or []}
    return status.get("phase") == "Pending" and "PodScheduled" not in kinds


def _container_problem(container: Object) -> Problem | None:
    state = container.get("state") or {}
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    waiting = state.get("waiting") or {}
    if ended.get("reason") == "OOMKilled":
        return Problem("killed for memory (OOMKilled)", "raise memory in its resources")
    reason = str(waiting.get("reason", ""))
    if reason not in _CONTAINER:
        return None
    message = _short(str(waiting.get("message", "")))
    if reason == "CrashLoopBackOff" and ended:
        message = f"it ended with exit code {ended.get('exitCode')}"
        message += f": {_short(str(ended['message']).strip())}" if ended.get("message") else ""
    # Some messages name the image and some do not.
    image = str(container.get("image", ""))
    named = f" of image {image}" if "Image" in reason and image not in message else ""
    return Problem(f"{reason}{named}: {message}".rstrip(": "), _CONTAINER[reason])


def _stuck(pod: Object, events: list[Object]) -> Problem | None:
    name = pod["metadata"]["name"]
    for event in reversed(events):
        about = event.get("involvedObject", {})
        if about.get("name") == name and about.get("uid", "") in ("", pod["metadata"].get("uid")):
            if event.get("type") != "Warning":
                return None
            if event.get("reason") in _STUCK:
                message = _short(str(event.get("message", "")))
                return Problem(f"{event['reason']}: {message}", _STUCK[event["reason"]])
    return None


def _containers(pod: Object) -> Iterator[Object]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []


def _scheduling_advice(message: str) -> str:
    return next((advice for sign, advice in _SCHEDULING if sign in message), "")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
