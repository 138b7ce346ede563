"""A pod's status in the words that help a person."""

from __future__ import annotations

from typing import Any, Dict

Pod = Dict[str, Any]
# What a kubelet says of an image or a container that no waiting will mend.
HOPELESS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
# What the API server says of a pod that it will never take as it is.
NEVER_TAKEN = ("no PriorityClass", "pod rejected: RuntimeClass", "violates PodSecurity")
# What a kubelet says of every container on its way up.
ORDINARY = (None, "ContainerCreating", "PodInitializing")


def is_hopeless(reason: str) -> bool:
    """Is a host missing for a reason that neither waiting nor another attempt can mend?"""
    return reason.startswith(HOPELESS) or any(words in reason for words in NEVER_TAKEN)


def describe(pod: Pod) -> str:
    """The most telling part: a container's state, else an unmet condition, else the phase."""
    status = pod.get("status", {})
    for container in [
        *status.get("initContainerStatuses", []),
        *status.get("containerStatuses", []),
    ]:
        told = _container(container)
        if told:
            return told
    for condition in status.get("conditions", []):
        if condition["status"] == "False" and condition.get("reason") == "Unschedulable":
            return f"Unschedulable: {condition.get('message', '')}"
    return f"phase {status.get('phase', 'unknown')}"


def _container(container: dict[str, Any]) -> str:
    state = container.get("state", {})
    ended = container.get("lastState", {}).get("terminated") or state.get("terminated") or {}
    if ended.get("exitCode"):
        detail = (ended.get("message") or ended.get("reason", "")).strip()
        return f"container {container['name']} exited with {ended['exitCode']}: {detail}"
    waiting = state.get("waiting") or {}
    if waiting.get("reason") in ORDINARY:
        return ""
    return f"{waiting['reason']}: {waiting.get('message', '')} (image {container['image']})"
