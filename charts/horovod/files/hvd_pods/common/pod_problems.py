"""Why a worker's pod does not run, and whether waiting or another attempt can help.

The known reasons are in pod_problems.json. Its sections are a container's waiting reason
(`container`), a part of the kubelet's message about an image that it cannot pull (`image`), a part
of the scheduler's message (`scheduling`), a part of the API server's message about a pod that it
refuses (`refusal`), a part of what a container that has ended says (`exit`), and the reason of an
event about a pod (`event`). `permanent` means that another attempt cannot help. `waitSeconds` is
for how many seconds the master waits for the problem to pass; without it, until
launch.hostsTimeoutSeconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, NamedTuple

from hvd_pods.common.errors import BAD_CONFIGURATION

Pod = Dict[str, Any]
# Section -> sign -> permanent, remedy and waitSeconds.
PROBLEMS: dict[str, dict[str, dict[str, Any]]] = json.loads(
    Path(__file__).with_name("pod_problems.json").read_text(encoding="utf-8")
)
# Waiting reasons of a container that is starting as it should.
STARTING = (None, "ContainerCreating", "PodInitializing")
# Seconds to wait for a worker with a wrong configuration: whoever sees it may correct a Secret.
BAD_CONFIGURATION_WAIT_SECONDS = 60.0


class Diagnosis(NamedTuple):
    """Why a host is missing, whether that is permanent, and what a person can do about it.

    `queued`: the pod waits to be admitted by a queue such as Kueue, or fetches its data. Either may
    take long. `wait_seconds`: how long to wait for the problem to pass; None: as long as for a host
    that merely starts.
    """

    reason: str
    permanent: bool = False
    remedy: str = ""
    queued: bool = False
    wait_seconds: float | None = None


def find_known_problem(section: str, text: str) -> dict[str, Any] | None:
    """The first entry in a section of the table whose sign is in `text`; None if there is none."""
    return next((known for sign, known in PROBLEMS[section].items() if sign in text), None)


def diagnose(pod: Pod) -> Diagnosis:
    """Explain a container's state, else why no node takes the pod, else give its phase.

    `pod` is the API server's object; parts that it lacks say nothing.
    """
    status = pod.get("status", {})
    if status.get("phase") == "Failed" and status.get("reason"):
        # The kubelet has ended the whole pod: Evicted, or Terminated when its node shuts down.
        return Diagnosis(f"{status['reason']}: {status.get('message', '')}")
    for container in [
        *status.get("initContainerStatuses", []),
        *status.get("containerStatuses", []),
    ]:
        problem = _diagnose_container(container)
        if problem:
            return problem
    for condition in status.get("conditions", []):
        if condition["status"] == "False" and condition.get("reason") == "SchedulingGated":
            return diagnose_gate(pod)
        if condition["status"] == "False" and condition.get("reason") == "Unschedulable":
            message = str(condition.get("message", ""))
            return _look_up("scheduling", message, f"Unschedulable: {message}")
    what = f"phase {status.get('phase', 'unknown')}"
    is_fetching = False
    if "deletionTimestamp" in pod.get("metadata", {}):
        what = "terminating"
    elif any(map(_is_running_staging, status.get("initContainerStatuses", []))):
        what = "the container staging fetches the data"
        is_fetching = True
    node = pod.get("spec", {}).get("nodeName")
    return Diagnosis(f"{what} on {node}" if node else what, queued=is_fetching)


def _is_running_staging(container: dict[str, Any]) -> bool:
    """Whether this is the status of the init container that fetches data, which it still does."""
    return container["name"] == "staging" and "running" in container.get("state", {})


def diagnose_gate(pod: Pod) -> Diagnosis:
    """Name the scheduling gates of a pod that a queue has not admitted yet."""
    gates = ", ".join(gate["name"] for gate in pod.get("spec", {}).get("schedulingGates", []))
    return Diagnosis(f"in a queue (scheduling gate {gates})", queued=True)


def exceeds_own_limit(eviction: str) -> bool:
    """Whether the kubelet has evicted a pod for the pod's own use of local storage.

    Its messages name the limit of a volume, a container or the pod (pkg/kubelet/eviction). Others
    name what the node lacks.
    """
    return "exceed" in eviction and " limit " in eviction


def diagnose_refusal(message: str) -> Diagnosis:
    """Explain why there is no pod; `message` is the API server's, empty when it gave none."""
    reason = f"the pod does not exist: {message}" if message else "the pod does not exist"
    return _look_up("refusal", message, reason)


def _diagnose_container(container: dict[str, Any]) -> Diagnosis | None:
    """Explain the status of a container that failed or cannot start; None for any other one."""
    state = container.get("state", {})
    ended = container.get("lastState", {}).get("terminated") or state.get("terminated") or {}
    if ended.get("exitCode"):
        return _diagnose_exit(container["name"], ended)
    waiting = state.get("waiting") or {}
    if waiting.get("reason") in STARTING:
        return None
    message = str(waiting.get("message", ""))
    reason = f"{waiting['reason']}: {message} (image {container['image']})"
    found = _look_up("container", waiting["reason"], reason)
    if "ImagePull" in waiting["reason"]:
        # The message shows whether the image does not exist or the registry does not answer.
        sure = _look_up("image", message, reason)
        return found._replace(permanent=sure.permanent, remedy=sure.remedy or found.remedy)
    return found


def _diagnose_exit(container: str, ended: dict[str, Any]) -> Diagnosis:
    detail = (ended.get("message") or ended.get("reason", "")).strip()
    reason = f"container {container} exited with {ended['exitCode']}: {detail}"
    if ended["exitCode"] == BAD_CONFIGURATION:
        # The chart's own program says so, and its message says what to correct.
        return Diagnosis(reason, permanent=True, wait_seconds=BAD_CONFIGURATION_WAIT_SECONDS)
    return _look_up("exit", detail, reason)


def _look_up(section: str, text: str, reason: str) -> Diagnosis:
    """The diagnosis by the first sign of the table that is in `text`.

    Without such a sign, it is the reason alone: waiting or another attempt may help.
    """
    known = find_known_problem(section, text)
    if known is None:
        return Diagnosis(reason)
    wait_seconds = known.get("waitSeconds")
    return Diagnosis(reason, known["permanent"], known["remedy"], wait_seconds=wait_seconds)
