"""Explains why a pod does not run, whether waiting or a retry can help, and the remedy.

The master checks workers that are missing. hvdchart checks every pod of a run.

The known reasons are in pod_problems.json. Its sections are a container's waiting reason
(`container`), a part of the kubelet's message about an image that it cannot pull (`image`), a part
of the scheduler's message (`scheduling`), a part of the API server's message about a pod that it
refuses (`refusal`), a part of the output of a container that has ended (`exit`), and the reason of
an event about a pod (`event`). `permanent` means that a retry cannot help. `waitSeconds` is the
time that the master waits for the problem to pass; the default is launch.workersTimeoutSeconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hvd_pods.shared.exit_codes import BAD_CONFIGURATION
from hvd_pods.shared.objects import Object
from hvd_pods.shared.untrusted import one_line

# Section -> sign -> permanent, remedy and waitSeconds.
PROBLEMS: dict[str, dict[str, dict[str, Any]]] = json.loads(
    Path(__file__).with_name("pod_problems.json").read_text(encoding="utf-8")
)
# Waiting reasons of a container that starts normally.
STARTING_REASONS = (None, "ContainerCreating", "PodInitializing")
SCHEDULER = "default-scheduler"
# Longer messages repeat themselves; the first part says what happened.
_short = partial(one_line, longest=300)
# Seconds to wait for a worker with a wrong configuration: a person may correct a Secret meanwhile.
BAD_CONFIGURATION_WAIT_SECONDS = 60.0
# The value with the resources of each container of the chart. Users' containers have their own.
RESOURCES = {
    "master": "master.resources",
    "worker": "worker.resources",
    "staging": "worker.resources",
    "tensorboard": "tensorboard.resources",
}


class Diagnosis(NamedTuple):
    """The state of a pod, whether it is permanent, and the remedy.

    `is_queued`: the pod waits to be admitted by a queue such as Kueue, or fetches its data. Either
    may take long. `wait_seconds`: how long to wait for the problem to pass; None: as long as for a
    worker that merely starts. `is_problem`: false if the pod may be starting or running normally.
    """

    reason: str
    is_permanent: bool = False
    remedy: str = ""
    is_queued: bool = False
    wait_seconds: float | None = None
    is_problem: bool = True


def find_known_problem(section: str, text: str) -> dict[str, Any] | None:
    """Return the first entry in a section of the table whose sign is in `text`, or None."""
    return next((problem for sign, problem in PROBLEMS[section].items() if sign in text), None)


def diagnose(pod: Object, events: Sequence[Object] = ()) -> Diagnosis:
    """Explain a container's state, else why no node accepts the pod, else return its phase.

    `pod` is the API server's object; missing parts are ignored. `events` are those about this pod,
    oldest first.
    """
    status = pod.get("status", {})
    if status.get("phase") == "Failed" and status.get("reason"):
        # The kubelet has ended the whole pod: Evicted, or Terminated when its node shuts down.
        return Diagnosis(
            _short(f"{status['reason']}: {status.get('message', '')}"),
            remedy="the node may have run out of memory, disk or process IDs: "
            "see kubectl describe node",
        )
    states = [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]
    limits = _memory_limits(pod)
    diagnoses = [
        *(_diagnose_container(state, limits.get(str(state["name"]), "")) for state in states),
        _diagnose_scheduling(pod),
        _diagnose_start(states, events),
        _diagnose_phase(pod),
    ]
    problems = [diagnosis for diagnosis in diagnoses if diagnosis]
    return next((diagnosis for diagnosis in problems if diagnosis.is_problem), problems[0])


def _diagnose_scheduling(pod: Object) -> Diagnosis | None:
    """Explain why a pod has no node; None if there is no problem."""
    status = pod.get("status", {})
    conditions = status.get("conditions") or []
    for condition in conditions:
        if condition["status"] == "False" and condition.get("reason") == "SchedulingGated":
            return diagnose_gate(pod)
        if condition["status"] == "False" and condition.get("reason") == "Unschedulable":
            message = str(condition.get("message", ""))
            return _look_up("scheduling", message, f"cannot be scheduled: {_short(message)}")
    scheduler = pod.get("spec", {}).get("schedulerName", SCHEDULER)
    is_unseen = "PodScheduled" not in {condition.get("type") for condition in conditions}
    if scheduler != SCHEDULER and is_unseen and status.get("phase") == "Pending":
        return Diagnosis(
            f"scheduler {scheduler!r} has not processed the pod",
            remedy="check that it is installed and running, or correct `schedulerName` or `gang`",
        )
    return None


def _diagnose_start(states: Sequence[Object], events: Sequence[Object]) -> Diagnosis | None:
    """Explain containers that are being created by the warnings at the end of a pod's events."""
    waiting = [(state.get("state") or {}).get("waiting") or {} for state in states]
    if not any(state.get("reason") in STARTING_REASONS[1:] for state in waiting):
        return None
    for event in reversed(events):
        if event.get("type") != "Warning":
            # The container has started: the problem of the earlier warnings is over.
            return None
        reason = str(event.get("reason", ""))
        if find_known_problem("event", reason):
            return _look_up("event", reason, f"{reason}: {_short(str(event.get('message', '')))}")
    return None


def _diagnose_phase(pod: Object) -> Diagnosis:
    status = pod.get("status", {})
    state = f"phase {status.get('phase', 'unknown')}"
    is_fetching = False
    if "deletionTimestamp" in pod.get("metadata", {}):
        state = "terminating"
    elif any(map(_is_running_staging, status.get("initContainerStatuses") or [])):
        state = "the container staging fetches the data"
        is_fetching = True
    node = pod.get("spec", {}).get("nodeName")
    return Diagnosis(
        f"{state} on {node}" if node else state, is_queued=is_fetching, is_problem=False
    )


def _is_running_staging(container: dict[str, Any]) -> bool:
    """Return whether a status is that of the init container that fetches data, while it runs."""
    return container["name"] == "staging" and "running" in container.get("state", {})


def diagnose_gate(pod: Object) -> Diagnosis:
    """Name the scheduling gates of a pod that a queue has not admitted yet."""
    gates = ", ".join(gate["name"] for gate in pod.get("spec", {}).get("schedulingGates", []))
    return Diagnosis(
        f"in a queue (scheduling gate {gates})",
        remedy="wait until the queue has room: with Kueue, see kubectl describe workloads",
        is_queued=True,
    )


def exceeds_own_limit(eviction: str) -> bool:
    """Return whether the kubelet evicted a pod because of the pod's own use of local storage.

    Such messages name the limit of a volume, a container or the pod (pkg/kubelet/eviction). Others
    name the resource that the node lacks.
    """
    return "exceed" in eviction and " limit " in eviction


def diagnose_refusal(message: str) -> Diagnosis:
    """Explain why there is no pod; `message` is the API server's, or empty."""
    reason = f"the pod does not exist: {message}" if message else "the pod does not exist"
    return _look_up("refusal", message, reason)


def _memory_limits(pod: Object) -> dict[str, str]:
    """Return the memory limit of each container that has one."""
    limits = {}
    spec = pod.get("spec", {})
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
        if limit:
            limits[str(container.get("name"))] = str(limit)
    return limits


def _diagnose_container(container: Object, memory: str) -> Diagnosis | None:
    """Explain the status of a container that failed or cannot start; None for any other one.

    `memory` is the container's limit, empty for none.
    """
    state = container.get("state") or {}
    last = container.get("lastState") or {}
    ended = state.get("terminated") or last.get("terminated") or {}
    waiting = state.get("waiting") or {}
    reason = str(waiting.get("reason", ""))
    if ended.get("reason") == "OOMKilled":
        used = f": it used all of its {memory}" if memory else ""
        name = str(container.get("name"))
        key = RESOURCES.get(name)
        limit = f"`{key}.limits.memory`" if key else f"the memory limit of the container {name}"
        remedy = f"raise {limit}"
        # A container that was restarted works.
        is_problem = "running" not in state
        return Diagnosis(
            f"killed for memory (OOMKilled){used}", remedy=remedy, is_problem=is_problem
        )
    if ended.get("exitCode"):
        diagnosis = _diagnose_exit(container["name"], ended)
        if "running" in state:
            # The container was restarted.
            return diagnosis._replace(is_problem=False)
        again = find_known_problem("container", reason) or {"remedy": ""}
        return diagnosis._replace(remedy=diagnosis.remedy or again["remedy"])
    if reason in ("", *STARTING_REASONS):
        return None
    message = str(waiting.get("message", ""))
    image = str(container.get("image", ""))
    # Some messages name the image and some do not.
    named = f" of image {image}" if "Image" in reason and image not in message else ""
    text = f"{reason}{named}: {_short(message)}".rstrip(": ")
    problem = _look_up("container", reason, text)
    if "ImagePull" in reason:
        # The message shows whether the image does not exist or the registry does not answer.
        sure = _look_up("image", message, text)
        return problem._replace(
            is_permanent=sure.is_permanent, remedy=sure.remedy or problem.remedy
        )
    return problem


def _diagnose_exit(container: str, ended: Object) -> Diagnosis:
    detail = str(ended.get("message") or ended.get("reason", ""))
    reason = f"container {container} exited with {ended['exitCode']}: {_short(detail)}"
    reason = reason.rstrip(": ")
    if ended["exitCode"] == BAD_CONFIGURATION:
        # The chart's own program reports this, and its message names the remedy.
        return Diagnosis(reason, is_permanent=True, wait_seconds=BAD_CONFIGURATION_WAIT_SECONDS)
    return _look_up("exit", detail, reason)


def _look_up(section: str, text: str, reason: str) -> Diagnosis:
    """Return the diagnosis by the first sign of the table that is in `text`.

    Without such a sign, return only the reason: waiting or a retry may help.
    """
    problem = find_known_problem(section, text)
    if problem is None:
        return Diagnosis(reason)
    wait_seconds = problem.get("waitSeconds")
    return Diagnosis(reason, problem["permanent"], problem["remedy"], wait_seconds=wait_seconds)
